"""A verb on another machine: the user's own ssh, and a container command behind it. No opinion on verbs.

Rule 1: ssh's own configuration stands: keys, agent, jump hosts, ports. Nothing here overrides it.
Rule 2: words reach the far side as they were typed: quoted for its shell, untouched for a container command.
Rule 3: nothing on the far side hangs on the link: a verb there that loses it ends as by Ctrl-C.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

FAR = "--far"
"""Before the verb on the far side: end it, as by Ctrl-C, when standard input ends."""
LINK_LOST = 255
"""ssh's exit status for its own errors; no verb has it."""
AFTER_CTRL_C_S = 5.0
CONFIG_CAP_BYTES = 1 << 20


class BadHosts(ValueError):
    """The file of hosts cannot be used; the text says where and why."""


class Host(Struct, frozen=True):
    """How to reach a machine. `ssh` are ssh's words; `exec_` goes before the command there, `exec_tty` instead of it
    where the verb has a terminal; `supervise` is the program's name there."""

    name: str
    ssh: tuple[str, ...]
    exec_: tuple[str, ...] = ()
    exec_tty: tuple[str, ...] = ()
    supervise: str = "supervise"


def config_path(environ: Mapping[str, str]) -> Path:
    """$XDG_CONFIG_HOME/supervise/config.yaml, else ~/.config/supervise/config.yaml."""
    base = environ.get("XDG_CONFIG_HOME", "")
    root = Path(base) if base.startswith("/") else Path(environ.get("HOME") or Path.home()) / ".config"
    return root / "supervise" / "config.yaml"


def find(name: str, config: Path) -> Host:
    """The entry of this name under `hosts`, else the name as ssh's destination. Raises BadHosts."""
    if name.startswith("-") or not name:
        raise BadHosts(f"--host {name}: a host's name does not begin with a dash")
    hosts = _hosts(config)
    if name not in hosts:
        return Host(name, (name,))
    return _host(name, hosts[name], config)


def _hosts(config: Path) -> Mapping[str, Any]:
    try:
        with open(config, "rb") as file:
            text = file.read(CONFIG_CAP_BYTES)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise BadHosts(f"{config}: {error.strerror}") from error
    import yaml

    try:
        plain = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BadHosts(f"{config}: {error}") from error
    hosts = plain.get("hosts", {}) if isinstance(plain, dict) else None
    if not isinstance(hosts, dict):
        raise BadHosts(f"{config}: write hosts: {{NAME: {{ssh: root@box, exec: [pct, exec, '200', --]}}}}")
    return {str(name): entry for name, entry in hosts.items()}


_KEYS = ("ssh", "exec", "exec_tty", "supervise")


def _host(name: str, entry: Any, config: Path) -> Host:
    where = f"{config}: hosts.{name}"
    if isinstance(entry, str):
        entry = {"ssh": entry}
    if not isinstance(entry, dict) or not set(entry) <= set(_KEYS):
        raise BadHosts(f"{where}: known keys are {', '.join(_KEYS)}")
    words = {key: _words(entry[key], f"{where}.{key}") for key in entry}
    return Host(
        name,
        ssh=words.get("ssh", (name,)),
        exec_=words.get("exec", ()),
        exec_tty=words.get("exec_tty", words.get("exec", ())),
        supervise=words.get("supervise", ("supervise",))[0],
    )


def _words(value: Any, where: str) -> tuple[str, ...]:
    """A list of words, or one word."""
    items = value if isinstance(value, list) else [value]
    if not items or any(isinstance(item, (dict, list, bool)) or item is None for item in items):
        raise BadHosts(f"{where}: write one word or a list of words")
    return tuple(str(item) for item in items)


def reads_input(words: Sequence[str]) -> bool:
    """Whether the verb is told to read standard input."""
    return not {"-", "/dev/stdin"}.isdisjoint(words)


def command(host: Host, words: Sequence[str], *, tty: bool) -> tuple[str, ...]:
    """ssh's argv for this verb there. With a terminal its keys and size go along; else standard input stands for the
    link (`FAR`), unless the verb reads it."""
    far = (host.supervise, *words) if tty or reads_input(words) else (host.supervise, FAR, *words)
    there = (*(host.exec_tty if tty else host.exec_), *far)
    return ("ssh", "-t" if tty else "-T", *host.ssh, " ".join(map(_quoted, there)))


def _quoted(word: str) -> str:
    """For the shell there; a path below the home directory stays one."""
    if word.startswith("~/") and word == shlex.quote(word[2:]).join(("~/", "")):
        return word
    return shlex.quote(word)


def run(argv: Sequence[str], *, tty: bool, stdin: bool) -> int:
    """The verb's exit status there, LINK_LOST where ssh failed. `stdin`: ours goes along. Raises OSError without ssh.

    ssh ignores Ctrl-C: with a terminal it passes it on as a key, without one the end of its input tells the far side.
    """
    source = None if tty or stdin else subprocess.PIPE
    child = subprocess.Popen(argv, stdin=source, preexec_fn=_ignore_interrupt)
    try:
        return _status(child.wait())
    except KeyboardInterrupt:
        if tty:
            return _status(child.wait())
        return _interrupted(child)
    finally:
        if child.poll() is None:
            child.terminate()
            child.wait()


def _ignore_interrupt() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _interrupted(child: subprocess.Popen[bytes]) -> int:
    """The far side ends its verb as by Ctrl-C, and its last words come before its status."""
    if child.stdin is not None:
        child.stdin.close()
    with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
        return _status(child.wait(AFTER_CTRL_C_S))
    return 128 + signal.SIGINT


def _status(code: int) -> int:
    return code if code >= 0 else LINK_LOST


def end_with_the_link() -> None:
    """On the far side: an end of standard input is Ctrl-C. The verb may read no input of its own."""

    def watch() -> None:
        with suppress(OSError):
            while os.read(0, 4096):
                pass  # nobody sends anything; what comes is not for the verb
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=watch, name="link", daemon=True).start()
