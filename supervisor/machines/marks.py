"""Small files that say what a run is to whoever does not read its journal: open, whose, with which spec."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from supervisor.core.evidence import MachineId
from supervisor.core.spec import RunSpec
from supervisor.edges.codec import to_plain
from supervisor.edges.files import fsync_dir, read_json, to_json, write_atomic
from supervisor.edges.paths import RunDir


class Marks:
    """Of one run. Each verb may be given again; what is so already is not written anew."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._told: MachineId | None = None

    def ensure_open(self) -> None:
        """The supervisor of the episode before may have taken the mark away just after `up` had made it."""
        if not self._run.open.exists():
            self._run.open.touch(mode=0o600)
            fsync_dir(self._run.path)

    def tell_machine(self, machine: MachineId | None) -> None:
        """machine.json, by which guardians and verbs know whose the run is."""
        if machine is None or machine == self._told:
            return
        plain = to_plain(machine)
        with suppress(OSError):  # a full disk: the journal says it too
            if self._known() != plain:
                write_atomic(self._run.machine, to_json(plain))
            self._told = machine

    def _known(self) -> Any:
        try:
            return read_json(self._run.machine)
        except ValueError:  # damaged: to be written anew
            return None

    def keep_spec(self, machine: MachineId, spec: RunSpec, args: Mapping[str, Any]) -> None:
        """run.json for whoever reads without the journal; spec.yaml as the user wrote it, without secret values."""
        if not args:
            return
        run = {"machine": to_plain(machine), "spec": to_plain(spec)}
        write_atomic(self._run.run_json, to_json(run), sync=False)
        write_atomic(self._run.spec_yaml, str(args.get("source") or "").encode(), sync=False)
