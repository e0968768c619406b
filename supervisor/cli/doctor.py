"""`supervise doctor`: what of this machine, this installation and a spec will cost a night, each with its fix.

Asks everything and changes nothing; what cannot be asked is said. Exit 6 where a run would be refused or lost.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from supervisor.cli import common
from supervisor.core.errors import Exit, Refusal, SpecError, SuperviseError
from supervisor.edges import home_box, host
from supervisor.edges.paths import Home

if TYPE_CHECKING:
    from supervisor.core.spec import RunSpec

OPEN_FILES_MIN = 4096
SHM_MIN_MIB = 1024.0
DISK_MIN_MIB = 2048.0
INOTIFY_MIN = 128
OWN_UNIT = "supervise.service"
"""That of `service install`: its KillMode leaves what was started from it alone."""


class Finding(NamedTuple):
    """`level` is `ok`, `note` (to know), `warn` (may cost a night) or `bad` (a run is refused or lost)."""

    what: str
    level: str
    text: str
    fix: str = ""


@click.command("doctor")
@click.argument("spec", type=click.Path(path_type=Path), required=False)
@common.output_option
def command(spec: Path | None, output: str) -> None:
    """What of this machine (and of SPEC) will cost a night, each with its fix. Changes nothing.

    Exit 0, or 6 where something is bad: a run would be refused, or lost at a logout, a reboot or a full disk.
    """
    found = [*machine(common.home())]
    if spec is not None:
        found += spec_findings(spec, has_gpus=not any(one.what == "driver" and one.level != "ok" for one in found))
    bad = any(one.level == "bad" for one in found)
    if output == "json":
        plain = {"schema": "supervise.doctor/v1", "ok": not bad, "findings": [one._asdict() for one in found]}
        click.echo(json.dumps(plain, indent=2))
    else:
        _print(found)
    common.leave(Exit.PREFLIGHT if bad else Exit.OK)


def _print(found: list[Finding]) -> None:
    from supervisor.views.words import safe, wrapped

    for one in found:
        for line in wrapped(f"{one.level:<5}{one.what}", one.text, indent=0, label_width=19):
            click.echo(line)
        if one.fix:
            click.echo(f"{'':20}fix: {safe(one.fix)}")
    counts = {level: sum(1 for one in found if one.level == level) for level in ("bad", "warn")}
    click.echo(f"{counts['bad']} bad, {counts['warn']} to look at, of {len(found)}")


def machine(home: Home) -> Iterator[Finding]:
    """Everything that needs no spec."""
    yield from _installation()
    yield _driver()
    yield from _box()
    yield from _tmux(home)
    yield from _survival()
    yield from _limits()
    yield from _state(home)
    yield from _guardian(home)


def _installation() -> Iterator[Finding]:
    from importlib import metadata

    import supervisor

    where = f"Python {sys.version.split()[0]}, {sys.prefix}"
    try:
        other = metadata.version("supervisor")
    except metadata.PackageNotFoundError:
        other = ""
    if other:
        text = f"the PyPI package supervisor {other} is installed here too: both are imported as `supervisor`"
        fix = f"{sys.executable} -m pip uninstall supervisor; or install supervise in an environment of its own"
        yield Finding("installation", "bad", text, fix)
    torch = next(iter(Path(supervisor.__file__).parents[1].glob("torch/version.py")), None)
    if torch is not None or any((Path(path) / "torch" / "version.py").exists() for path in sys.path if path):
        text = (
            f"supervise sits in an environment with torch ({sys.prefix}): what a job upgrades can break its supervisor"
        )
        fix = "python3 -m venv ~/.supervise-venv && ~/.supervise-venv/bin/pip install supervise-training"
        yield Finding("installation", "warn", text, fix)
    elif not other:
        yield Finding("installation", "ok", where)


def _driver() -> Finding:
    from contextlib import closing

    from supervisor.edges.gpus import Gpus, GpusUnavailable

    with closing(Gpus()) as gpus:
        try:
            there = gpus.list()
        except GpusUnavailable as error:
            return Finding("driver", "note", f"{error}. Jobs without GPUs run all the same", "")
        if gpus.unlisted:
            return Finding(
                "driver", "bad", f"not answering: {'; '.join(gpus.unlisted)}", "nvidia-smi; dmesg | grep Xid"
            )
    names = ", ".join(sorted({gpu.name for gpu in there}))
    return Finding("driver", "ok", f"{len(there)} GPUs: {names}")


def _box() -> Iterator[Finding]:
    from supervisor.edges.holders import in_initial_pid_namespace

    kind = home_box.container()
    name = os.uname()
    yield Finding("machine", "ok", f"{name.nodename}, Linux {name.release}{f', in {kind}' if kind else ''}")
    if kind and not in_initial_pid_namespace():
        text = "processes of the host cannot be seen: whoever holds a GPU from there is told without a name"
        yield Finding("container", "note", text, "docker run --pid=host, or run supervise on the host")


def _tmux(home: Home) -> Iterator[Finding]:
    from supervisor.edges.files import read_json

    path = shutil.which("tmux")
    if path is None:
        yield Finding("tmux", "bad", "not installed: no run has a terminal", "sudo apt-get install tmux")
        return
    version = home_box.said_by(path, "-V")
    if version is None:
        yield Finding("tmux", "bad", f"{path} does not run", "sudo apt-get install --reinstall tmux")
        return
    noted = read_json(home.tmux_pid) if home.tmux_pid.exists() else None
    pid = noted.get("pid") if isinstance(noted, dict) else None
    unit = home_box.unit_of(pid) if pid else ""
    if unit and unit != OWN_UNIT:
        text = f"our tmux server (pid {pid}) is in {unit}: jobs end when that service is restarted"
        yield Finding("tmux", "warn", text, _unit_fix(unit))
    else:
        yield Finding("tmux", "ok", version)


def _unit_fix(unit: str) -> str:
    return f"systemctl edit {unit}: [Service] KillMode=process; or start runs from a login session"


def _survival() -> Iterator[Finding]:
    """Whether what is started here lives on after a logout and a service's restart."""
    unit = home_box.unit_of("self")
    if unit:
        text = f"this shell is in {unit}: what is started from it ends when that service is restarted"
        yield Finding("service", "warn", text, _unit_fix(unit))
    user = _user()
    told = home_box.logind(user)
    if told.kills is None:
        yield Finding("logout", "ok", "no logind here: nothing is ended at a logout")
    elif told.linger:
        yield Finding("logout", "ok", f"{user} lingers: processes live on, user services start at boot")
    elif told.kills and not told.excluded:
        text = "KillUserProcesses=yes: a logout ends the runs and their supervisors"
        yield Finding("logout", "bad", text, f"sudo loginctl enable-linger {user}")
    else:
        text = "runs live on after a logout; after a reboot nobody supervises them until you log in"
        yield Finding("logout", "note", text, f"sudo loginctl enable-linger {user}; supervise service install")


def _user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _limits() -> Iterator[Finding]:
    limits = host.limits()
    wrong: list[Finding] = []
    if limits.open_files is not None and limits.open_files < OPEN_FILES_MIN:
        text = f"open files: {limits.open_files}; data loaders of eight ranks need more"
        wrong.append(Finding("limits", "warn", text, "ulimit -n 65536, or LimitNOFILE= / limits.conf"))
    if limits.address_space_mib is not None:
        text = f"address space: {limits.address_space_mib:.0f} MiB; CUDA reserves far more than it uses"
        wrong.append(Finding("limits", "warn", text, "ulimit -v unlimited"))
    shm = host.shm_free_mib()
    if shm is not None and shm < SHM_MIN_MIB:
        text = f"/dev/shm has {shm:.0f} MiB free: data loaders and NCCL fail without a clear word"
        wrong.append(
            Finding("limits", "warn", text, "docker run --shm-size=16g, or: mount -o remount,size=50% /dev/shm")
        )
    instances = _number("/proc/sys/fs/inotify/max_user_instances")
    if instances is not None and instances < INOTIFY_MIN:
        text = f"inotify instances: {instances}; logs are then looked at once a second instead"
        wrong.append(Finding("limits", "note", text, "sudo sysctl fs.inotify.max_user_instances=1024"))
    yield from wrong or [Finding("limits", "ok", f"open files {limits.open_files or 'unlimited'}")]


def _number(path: str) -> int | None:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return None


def _state(home: Home) -> Iterator[Finding]:
    folder = home.root
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    place = home_box.place_of(folder)
    fix = "set SUPERVISE_HOME to a folder on a local disk, the same for every verb"
    try:
        wrong = home_box.tried(folder)
    except OSError as error:
        yield Finding("state", "bad", f"{folder}: {error.strerror or error}", fix)
        return
    for what, why in wrong.items():
        yield Finding("state", "warn" if what in ("hard links", "fsync") else "bad", f"{folder}: {what}: {why}", fix)
    if place.is_remote:
        yield Finding("state", "warn", f"{home.root} is on {place.type}: locks and fsync may mean less there", fix)
    elif place.type in home_box.GONE_FS:
        yield Finding("state", "note", f"{home.root} is on {place.type}: {home_box.GONE_FS[place.type]}", fix)
    elif not wrong:
        yield Finding("state", "ok", f"{home.root} on {place.type}: writes, fsync, locks work")
    yield _room("disk", str(folder))


def _room(what: str, path: str, wanted_mib: float = DISK_MIN_MIB) -> Finding:
    try:
        free = host.disk_free_mib(path)
    except OSError as error:
        return Finding(what, "bad", f"{path}: {error}", "df -h; is a network mount dead?")
    if free < wanted_mib:
        return Finding(what, "warn", f"{path}: {free:.0f} MiB free, {wanted_mib:.0f} MiB wanted", f"df -h {path}")
    return Finding(what, "ok", f"{path}: {free / 1024:.0f} GiB free")


def _guardian(home: Home) -> Iterator[Finding]:
    from supervisor.edges.locks import is_held

    opened = [name for name in home.names() if home.run(name).open.exists()]
    alone = [name for name in opened if not is_held(home.run(name).lock)]
    if alone:
        text = f"open and without a supervisor: {', '.join(alone)}"
        yield Finding("guardian", "bad", text, "supervise adopt --all")
    elif opened:
        yield Finding("guardian", "ok", f"{len(opened)} open runs, each with its supervisor")


def spec_findings(path: Path, *, has_gpus: bool) -> list[Finding]:
    """What stands in the way of this spec on this machine."""
    from supervisor.cli.check import machine_lacks, would_copy
    from supervisor.edges import specfile

    environ = dict(os.environ)
    try:
        file = specfile.read(path, environ)
    except SpecError as error:
        return [Finding("spec", "bad", str(one), f"supervise check {path}") for one in error.mistakes]
    except (Refusal, SuperviseError) as error:
        return [Finding("spec", "bad", str(error), "supervise init")]
    spec = file.spec
    found = [Finding("spec", "ok", f"{path}: valid")]
    found += [Finding("spec", "warn", text) for text in spec.warnings]
    found += [
        Finding("spec", "bad", text, "") for text in (*machine_lacks(file, environ), *would_copy(file, environ)[1])
    ]
    if spec.gpus and not has_gpus:
        text = f"the topology wants {len(spec.gpus)} GPUs, and none answers here"
        found.append(Finding("gpus", "bad", text, f"supervise up --simulate {path}"))
    found += [*_command(spec), *_venv(spec), *_notify(spec, environ)]
    for what, folder in (("output", spec.output.dir), ("checkpoints", spec.resume and spec.resume.from_)):
        if folder and "${{" not in folder:
            plain = folder.partition("*")[0].rpartition("/")[0] if "*" in folder else folder
            found.append(_room(what, plain or "/", spec.preflight.disk_free_mib or DISK_MIN_MIB))
    return found


def _command(spec: RunSpec) -> Iterator[Finding]:
    from supervisor.edges.launchers import understand

    launch = understand(spec.command)
    restarts = launch.own_restarts or int("0" + spec.env.get("PET_MAX_RESTARTS", "").strip())
    if restarts:
        text = (
            f"{launch.kind or 'the launcher'} restarts its workers {restarts} times by itself: with the same knobs, "
            "on GPUs that nobody verified empty, from a checkpoint that nobody chose"
        )
        yield Finding("launcher", "warn", text, "--max-restarts=0: supervise relaunches")
    if launch.gpus is not None and spec.gpus and launch.gpus != len(spec.gpus):
        text = f"{launch.kind} starts {launch.gpus} processes, the topology has {len(spec.gpus)} GPUs"
        yield Finding("launcher", "warn", text, "write the count as ${{ topology.ROLE.count }}")


def _venv(spec: RunSpec) -> Iterator[Finding]:
    if spec.venv and Path(spec.venv).exists() and Path(spec.venv).resolve() == Path(sys.prefix).resolve():
        text = f"{spec.venv} is the environment that supervise itself runs in: what the job upgrades can break it"
        yield Finding("venv", "bad", text, "python3 -m venv ~/.supervise-venv, and install supervise there")


def _notify(spec: RunSpec, environ: dict[str, str]) -> Iterator[Finding]:
    from importlib.util import find_spec

    from supervisor.edges import notify

    if spec.notify is None:
        yield Finding("notify", "note", "nobody is told of a halt", "notify: {on: [recovered, halted, finished]}")
        return
    urls = [one.url for one in notify.places(environ.get(spec.notify.urls_from, ""))]
    if any(not url.startswith(("http://", "https://")) for url in urls) and find_spec("apprise") is None:
        yield Finding("notify", "warn", "an address takes apprise, which is not installed", notify.EXTRA)
