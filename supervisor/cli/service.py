"""`supervise service`: supervisors for open runs after a reboot, by the user's systemd or a container's entrypoint."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click

from supervisor.cli import common
from supervisor.core.errors import Exit, Refusal
from supervisor.edges import home_box
from supervisor.edges.paths import Home

NAME = "supervise.service"
STEP_S = 20.0
UNIT = """\
# Written by `supervise service install`.
[Unit]
Description=supervise: a supervisor for every open run of {user}

[Service]
ExecStart={argv}
Environment="SUPERVISE_HOME={home}"
# Jobs, supervisors and the tmux server were started from here and live on when this service is restarted.
KillMode=process
Restart=always
RestartSec=1

[Install]
WantedBy=default.target
"""


@click.group("service")
def command() -> None:
    """Supervisors for open runs after a reboot."""


@command.command("install")
@click.option("--print", "only_print", is_flag=True, help="Print the unit, install nothing.")
def install(only_print: bool) -> None:
    """Install a systemd user unit, let your account linger, start it; without systemd, say the entrypoint's line."""
    home = common.home()
    unit = UNIT.format(user=_user(), argv=" ".join(map(_quoted, _argv())), home=_escaped(str(home.root)))
    if only_print:
        click.echo(unit, nl=False)
        return
    if not home_box.has_systemd():
        _say_entrypoint(home)
        return
    path = _unit_path()
    _write(path, unit)
    click.echo(f"{path} written")
    failed = [said for argv in _steps() if (said := _run(argv))]
    for said in failed:
        common.say(said)
    if failed:
        common.leave(Exit.ERROR)
    click.echo("open runs are supervised from boot on. See: systemctl --user status supervise")


@command.command("uninstall")
def uninstall() -> None:
    """Stop and remove the unit. Runs and their supervisors go on; lingering is left as it is."""
    path = _unit_path()
    if not path.exists():
        raise Refusal(Exit.OK, f"{path} is not there: nothing to do")
    said = _run(("systemctl", "--user", "disable", "--now", NAME))
    path.unlink()
    common.say(said or f"{path} removed")
    common.leave(Exit.ERROR if said else Exit.OK)


def _say_entrypoint(home: Home) -> None:
    common.say(
        "no systemd here (a container?): put this line into its entrypoint, before the command it ends with, and keep "
        f"{home.root} on a volume"
    )
    click.echo(f"{' '.join(map(_quoted, _argv()))} &")


def _argv() -> tuple[str, ...]:
    """The guardian as a service: it stays, and ends only when it is told to."""
    program = Path(sys.executable).with_name("supervise")
    first = (str(program),) if program.exists() else (sys.executable, "-m", "supervisor.cli")
    return (*first, "adopt", "--all", "--watch")


def _quoted(word: str) -> str:
    plain = _escaped(word).replace("$", "$$")  # variables are replaced in ExecStart, not in Environment
    return f'"{plain}"' if set(word) & set(" \t'\"\\") else plain


def _escaped(word: str) -> str:
    """As systemd.unit(5) and systemd.exec(5) want it: `%` stands for itself, quotes are escaped."""
    return word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")


def _unit_path() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME", "")
    root = Path(base) if base.startswith("/") else Path.home() / ".config"
    return root / "systemd" / "user" / NAME


def _write(path: Path, unit: str) -> None:
    from supervisor.edges.files import write_atomic

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, unit.encode(), mode=0o644)
    except OSError as error:
        raise Refusal(Exit.ERROR, f"{path} cannot be written: {error.strerror}. Nothing was installed.") from error


def _steps() -> tuple[tuple[str, ...], ...]:
    return (
        ("systemctl", "--user", "daemon-reload"),
        ("systemctl", "--user", "enable", "--now", NAME),
        ("loginctl", "enable-linger"),
    )


def _run(argv: tuple[str, ...]) -> str:
    """Empty when it went well; else what to do."""
    environ = dict(os.environ)
    runtime = f"/run/user/{os.getuid()}"
    if "XDG_RUNTIME_DIR" not in environ and Path(runtime).is_dir():  # as after `su` and `sudo`
        environ["XDG_RUNTIME_DIR"] = runtime
    words = " ".join(argv)
    try:
        done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=STEP_S)
    except FileNotFoundError:
        return f"{argv[0]} is not there: {words}"
    except subprocess.TimeoutExpired:
        return f"no answer within {STEP_S:.0f} s: {words}"
    if done.returncode == 0:
        return ""
    fix = "sudo loginctl enable-linger $USER" if argv[0] == "loginctl" else f"log in anew (not by su), then: {words}"
    return f"{words}: {done.stderr.strip() or f'exit {done.returncode}'}. Fix: {fix}"


def _user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
