"""Where everything of a state directory lies. Names only: nothing here makes, changes or removes a file.

Named tuples: making a dataclass imports `inspect`, which the guardian would keep in memory for days.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

_NOBODY = 65534
_SUN_PATH_MAX = 100  # unix(7): 108 bytes with the end; tmux appends ".lock"


class AttemptDir(NamedTuple):
    """The folder of one attempt, `attempts/0001`."""

    n: int
    path: Path

    @property
    def spec_resolved(self) -> Path:
        return self.path / "spec.resolved.yaml"

    @property
    def claim(self) -> Path:
        return self.path / "claim"

    @property
    def members(self) -> Path:
        return self.path / "members.jsonl"

    @property
    def output(self) -> Path:
        return self.path / "output.log"

    @property
    def exit_json(self) -> Path:
        return self.path / "exit.json"

    @property
    def environment(self) -> Path:
        """The fingerprint: names and redacted values only."""
        return self.path / "environment.json"

    @property
    def code(self) -> Path:
        """The hashes of the code at the launch, where the spec has `code`."""
        return self.path / "code.json"

    @property
    def launch_json(self) -> Path:
        """What the runner is to start."""
        return self.path / "launch.json"

    @property
    def files(self) -> Path:
        """Config files rendered for this attempt."""
        return self.path / "files"


class RunDir(NamedTuple):
    """The folder of one run, `runs/NAME`."""

    name: str
    path: Path

    @property
    def stranger(self) -> int | None:
        """The uid of another user to whom the folder belongs; None where it is ours or not there yet.

        65534 is what a namespace or an NFS server without a name for us says.
        """
        try:
            uid = os.lstat(self.path).st_uid
        except OSError:  # not there yet, or not to be had: whoever writes says so
            return None
        return None if uid in (os.geteuid(), _NOBODY) else uid

    @property
    def lock(self) -> Path:
        """Held by the run's supervisor; never unlinked."""
        return self.path / "lock"

    @property
    def open(self) -> Path:
        """There from before the first record of an episode until after its last."""
        return self.path / "open"

    @property
    def secrets(self) -> Path:
        """The only file with secret values (0600)."""
        return self.path / "secrets.json"

    @property
    def snapshot(self) -> Path:
        """A cache of the fold over the journal."""
        return self.path / "snapshot.json"

    @property
    def spec_yaml(self) -> Path:
        return self.path / "spec.yaml"

    @property
    def run_json(self) -> Path:
        """The resolved spec and the machine that the run belongs to."""
        return self.path / "run.json"

    @property
    def machine(self) -> Path:
        """The machine that the run belongs to: boot_id, machine_id, host. Small, for the guardian."""
        return self.path / "machine.json"

    @property
    def journal(self) -> Path:
        return self.path / "journal.jsonl"

    @property
    def now(self) -> Path:
        """What is, replaced once a second."""
        return self.path / "now.json"

    @property
    def view(self) -> Path:
        """A cache: what verbs folded from the journal, so that a long one is not read by each."""
        return self.path / "view.json"

    @property
    def samples(self) -> Path:
        return self.path / "samples"

    @property
    def requests(self) -> Path:
        return self.path / "requests"

    @property
    def bell(self) -> Path:
        """A FIFO that the run's supervisor sleeps on; verbs write a byte into it."""
        return self.path / "bell"

    @property
    def supervisor_log(self) -> Path:
        return self.path / "supervisor.log"

    @property
    def watch(self) -> Path:
        """Last progress, interval maxima, GPU normals and log offsets, saved every 10 s."""
        return self.path / "watch.json"

    @property
    def code(self) -> Path:
        """Copies of the code, one for each episode that was launched from one."""
        return self.path / "code"

    @property
    def attempts(self) -> Path:
        return self.path / "attempts"

    def attempt(self, n: int) -> AttemptDir:
        """The folder of attempt `n`, counted from 1."""
        return AttemptDir(n, self.attempts / f"{n:04d}")


class Home(NamedTuple):
    """The state directory."""

    root: Path

    @classmethod
    def find(cls, environ: Mapping[str, str]) -> Home:
        """$SUPERVISE_HOME, else $XDG_STATE_HOME/supervise, else ~/.local/state/supervise; always absolute.

        A relative $XDG_STATE_HOME is ignored, as its specification asks. ~ is $HOME, else the account's.
        """
        if named := environ.get("SUPERVISE_HOME"):
            return cls(Path(named).expanduser().absolute())
        xdg = environ.get("XDG_STATE_HOME", "")
        if xdg.startswith("/"):
            return cls(Path(xdg) / "supervise")
        home = environ.get("HOME", "")
        base = Path(home) if home.startswith("/") else Path.home()
        return cls(base / ".local" / "state" / "supervise")

    @property
    def guardian_lock(self) -> Path:
        return self.root / "guardian.lock"

    @property
    def guardian_log(self) -> Path:
        return self.root / "guardian.log"

    @property
    def guardian_wake(self) -> Path:
        """A FIFO that the guardian reads: a byte in it means "look now"."""
        return self.root / "guardian.wake"

    @property
    def tmux_sock(self) -> Path:
        """Our tmux server's socket; under /tmp where the state directory's path is too long for a socket's address."""
        wanted = self.root / "tmux.sock"
        if len(os.fsencode(wanted)) <= _SUN_PATH_MAX:
            return wanted
        from hashlib import sha256  # here, because hardly any state directory needs it

        key = sha256(os.fsencode(self.root)).hexdigest()[:16]
        return Path(f"/tmp/supervise-{os.getuid()}-{key}/tmux.sock")

    @property
    def tmux_pid(self) -> Path:
        """The pid and start ticks of our tmux server, for when its socket was removed under it."""
        return self.root / "tmux.json"

    @property
    def reserve(self) -> Path:
        """1 MiB that is freed when the disk is full."""
        return self.root / "reserve"

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    def run(self, name: str) -> RunDir:
        """The folder of a run; whether it is there is another question."""
        return RunDir(name, self.runs / name)

    def names(self) -> list[str]:
        """The runs that have a folder, sorted. Hidden names and plain files are no runs."""
        try:
            with os.scandir(self.runs) as entries:
                return sorted(one.name for one in entries if not one.name.startswith(".") and one.is_dir())
        except FileNotFoundError:
            return []
