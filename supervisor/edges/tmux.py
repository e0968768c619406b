"""The terminal that a person attaches to: sessions of our own tmux server. Not whether a run lives.

Rule 1: nothing here decides about life and death of a run. A server that is dead, stopped or without its socket
costs the view only; it is told apart from "there is no such session" (`There.UNKNOWN`).
Rule 2: names are matched exactly; tmux itself would take the beginning of a name for it.

tmux(1) is the source of the formats; behaviour was tried on 3.3a.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from enum import Enum
from pathlib import Path

from msgspec import Struct

from supervisor.edges import proc
from supervisor.edges.paths import Home
from supervisor.edges.tmux_server import DEADLINE_S, KEEP, TmuxMissing, TmuxServer, TmuxSilent, find_tmux, insist

__all__ = ["PaneInfo", "There", "Tmux", "TmuxMissing", "TmuxSilent"]

VIEW = "view"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
_FIELDS = "#{session_name}\t#{pane_id}\t#{pane_pid}\t#{pane_dead}\t#{pid}\t#{@supervise}"


class There(Enum):
    """Whether a session is there."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class PaneInfo(Struct, frozen=True):
    """A pane and its process. `alive` False: the process has ended (a zombie too); `is_view`: it only shows output."""

    session: str
    pane_id: str
    pid: int
    start_ticks: int | None
    alive: bool
    is_view: bool
    server_pid: int
    tag: str = ""


class Tmux:
    """Our tmux server. Cheap to make: nothing is started or asked before the first call."""

    def __init__(self, home: Home, *, deadline_s: float = DEADLINE_S) -> None:
        self.home = home
        self.server = TmuxServer(home, deadline_s)

    def version(self) -> str:
        """As `tmux -V` says it, such as `3.3a`. Raises TmuxMissing, TmuxSilent."""
        return self.server.run("-V").out[0].removeprefix("tmux ")

    def ensure_session(self, name: str, argv: Sequence[str], cwd: Path) -> PaneInfo:
        """See that a pane of the session `name` runs `argv`, started in `cwd`; there already? Then that one.

        A pane whose process has ended, or that only shows output, is used again, so that whoever is attached
        stays attached; a pane with another live process is left alone. Raises TmuxMissing, TmuxSilent.
        """
        tag = "run:" + hashlib.sha256("\0".join((*argv, str(cwd))).encode()).hexdigest()[:16]
        return self._ensure(name, argv, cwd, tag, direct=True)

    def ensure_view(self, name: str, output: Path) -> PaneInfo:
        """See that the session `name` shows something: any pane that is there, else one that follows `output`."""
        mine = self._panes_of(_checked(name))
        if mine:
            return mine[0]
        return self._ensure(name, ["tail", "-n", "1000", "-F", "--", str(output)], self.home.root, VIEW)

    def is_there(self, name: str) -> There:
        """Whether the session is there. A server that does not answer leaves that unknown."""
        try:
            answer = self.server.ask("has-session", "-t", f"={_checked(name)}")
        except (TmuxSilent, TmuxMissing):
            return There.UNKNOWN
        if answer.code == 0:
            return There.YES
        if answer.nobody_there or answer.err.startswith("can't find session"):
            return There.NO
        return There.UNKNOWN

    def panes(self) -> tuple[PaneInfo, ...]:
        """All panes of the server; none where there is no server. Raises TmuxMissing, TmuxSilent."""
        answer = self.server.ask("list-panes", "-a", "-F", _FIELDS)
        if answer.nobody_there:
            return ()
        insist(answer)
        return tuple(_pane(line) for line in answer.out)

    def kill_session(self, name: str) -> None:
        """End the session, and the server with the last one; fine when it is gone. Raises TmuxMissing, TmuxSilent.

        What runs in it gets SIGHUP and may well live on: this tidies the view, it stops nothing.
        """
        # `#{S:x}` is one x for each session: this one is `_keep`. `#{server_sessions}` is empty in 3.3a.
        last = ("if-shell", "-F", "#{==:#{S:x},x}", "kill-server")
        answer = self.server.ask("kill-session", "-t", f"={_checked(name)}", ";", *last)
        if not answer.nobody_there and not answer.err.startswith("can't find session"):
            insist(answer)

    def attach_argv(self, name: str, read_only: bool = True) -> list[str]:
        """What to exec to attach, also from inside another tmux."""
        mode = ["-r"] if read_only else []
        tmux = ["env", "-u", "TMUX", find_tmux(), "-u", *self.server.where]
        return [*tmux, "attach-session", *mode, "-t", f"={_checked(name)}"]

    def server_pid(self) -> int | None:
        """The process of our server as last recorded, while it lives."""
        server = self.server.process()
        return server.pid if server else None

    # -- one session

    def _ensure(self, name: str, argv: Sequence[str], cwd: Path, tag: str, *, direct: bool = False) -> PaneInfo:
        """`direct`: without libtmux, for the launch of a runner."""
        for _ in range(3):  # another process may make or end the session between our two calls
            mine = self._panes_of(_checked(name), direct)
            for pane in mine:
                if pane.tag == tag and pane.alive:
                    return pane
            how, target = _make(name, mine, ("-c", str(cwd), "--", *_direct(argv)))
            told = ("set-option", "-p", "-t", target, "@supervise", tag)
            said = ("display-message", "-p", "-t", target, _FIELDS)
            answer = self.server.ask(*how, ";", *told, ";", *said, direct=direct)
            if answer.code == 0:
                break
        insist(answer)
        pane = _pane(answer.out[-1])
        self.server.remember(pane.server_pid)
        return pane

    def _panes_of(self, name: str, direct: bool = False) -> list[PaneInfo]:
        """The session's panes; starts the server where there is none."""
        answer = None
        if self.server.is_known():
            answer = self.server.ask("list-panes", "-a", "-F", _FIELDS, direct=direct)
        if answer is None or answer.nobody_there:
            self.server.start()
            return []
        insist(answer)
        # Compared here: tmux would take `=a` for the start of a name in this command.
        panes = [_pane(line) for line in answer.out]
        for pane in panes[:1]:
            self.server.remember(pane.server_pid)  # whoever started it may have been killed before it did
        return [pane for pane in panes if pane.session == name]


def _make(name: str, mine: Sequence[PaneInfo], what: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """The command that runs `what` in the session, and where it will be: a new session, an idle pane, a new window."""
    idle = next((pane for pane in mine if pane.is_view or not pane.alive), None)
    if not mine:
        return ("new-session", "-d", "-s", name, "-x", "200", "-y", "50", *what), f"={name}:"
    if idle is not None:
        return ("respawn-pane", "-k", "-t", idle.pane_id, *what), idle.pane_id
    return ("new-window", "-t", f"={name}:", *what), f"={name}:"


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name) or name == KEEP:
        raise ValueError(f"not a name for a session: {name!r}")
    return name


def _direct(argv: Sequence[str]) -> Sequence[str]:
    """Words that tmux executes itself. A single word would go through a shell: `env` makes two of it.

    A word that ends in `;` would end the command: tmux takes a backslash before it.
    """
    words = [f"{word[:-1]}\\;" if word.endswith(";") else word for word in argv]
    return words if len(words) > 1 else ["env", *words]


def _pane(line: str) -> PaneInfo:
    session, pane_id, pid, dead, server_pid, tag = line.split("\t")
    seen = proc.stat(int(pid)) if pid else None
    alive = dead != "1" and seen is not None and not proc.is_dead(seen)
    ticks = seen.start_ticks if seen else None
    return PaneInfo(session, pane_id, int(pid or 0), ticks, alive, tag == VIEW, int(server_pid), tag)
