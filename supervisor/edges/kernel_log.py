"""The kernel's messages since a moment: who the memory killer ended, what the NVIDIA driver reported. Read only.

/dev/kmsg gives one record a read, from the oldest in the ring (Documentation/ABI/testing/dev-kmsg):
`priority,sequence,microseconds,flags;text`, then lines of key=value. Containers mostly may not read it.
Rule 1: only what the kernel itself said counts (facility 0): anybody with the right may write there.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Collection, Mapping

from supervisor.core.aftermath import CouldNotTell, KernelSaid, OomKill, Xid
from supervisor.core.evidence import Uuid

PATH = "/dev/kmsg"
RECORD_MAX = 8192
"""No record is longer (CONSOLE_EXT_LOG_MAX)."""

RECORDS_MAX = 200_000
READ_FOR_S = 1.0
KEPT = 64

_OOM = re.compile(
    r"oom-kill:constraint=.*?,task=(?P<name>[^,]*),pid=(?P<pid>\d+)"
    r"|[Oo]ut of memory: Kill(?:ed)? process (?P<pid2>\d+) \((?P<name2>[^)]*)\)"
)
_XID = re.compile(r"NVRM: Xid \((?P<pci>PCI:[0-9a-fA-F:.]+)[^)]*\): (?P<code>\d+)(?:, pid='?(?P<pid>\d+))?")


class KernelLog:
    """One attempt's view of the kernel's log. Each look reads on from the one before."""

    def __init__(self, since_boot_s: float, path: str = PATH) -> None:
        self._since_boot_s = since_boot_s
        self._path = path
        self._fd = -1
        self._kills: dict[int, tuple[str, str, float]] = {}
        self._xids: list[tuple[int, str, str, int | None, float]] = []

    def look(
        self, pids: Collection[int], gpus: Mapping[str, Uuid], *, same_namespace: bool
    ) -> KernelSaid | CouldNotTell:
        """What was said so far. `pids` are those of the attempt, `gpus` the run's by PCI address (`00000000:3B:00`).

        `same_namespace`: the kernel's process ids are those seen from here.
        """
        try:
            self._read_on()
        except OSError as error:
            self.close()
            return CouldNotTell(f"the kernel's log ({self._path}): {error.strerror or error}")
        kills = tuple(
            OomKill(pid, name, text, (pid in pids) if same_namespace else None, at_boot_s)
            for pid, (name, text, at_boot_s) in self._kills.items()
        )
        xids = tuple(
            Xid(code, text, gpus.get(pci), same_namespace and pid in pids, at_boot_s)
            for code, pci, text, pid, at_boot_s in self._xids
        )
        return KernelSaid(kills, xids)

    def close(self) -> None:
        """Let go of the device."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _read_on(self) -> None:
        if self._fd < 0:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        until_s = time.monotonic() + READ_FOR_S
        asleep_s = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()  # the log's clock stops in a suspend
        for _ in range(RECORDS_MAX):
            try:
                record = os.read(self._fd, RECORD_MAX)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.EPIPE:  # overtaken: what was lost is lost, the next read goes on
                    continue
                raise
            if not record or time.monotonic() > until_s:
                return
            self._note(record, asleep_s)

    def _note(self, record: bytes, asleep_s: float) -> None:
        head, _, rest = record.partition(b";")
        fields = head.split(b",")
        if len(fields) < 3 or not fields[0].isdigit() or int(fields[0]) >> 3:
            return
        at_boot_s = int(fields[2]) / 1e6 + asleep_s
        text = rest.partition(b"\n")[0].decode("utf-8", "replace")
        if at_boot_s < self._since_boot_s:
            return
        found = _OOM.search(text)
        if found and len(self._kills) < KEPT:
            name, pid = found["name"] or found["name2"] or "?", int(found["pid"] or found["pid2"])
            self._kills.setdefault(pid, (name, text, at_boot_s))
        found = _XID.search(text)
        if found and len(self._xids) < KEPT:
            pid_text = found["pid"]
            self._xids.append(
                (int(found["code"]), pci_address(found["pci"]), text, int(pid_text) if pid_text else None, at_boot_s)
            )


def pci_address(text: str) -> str:
    """`PCI:0000:3b:00`, `0000:3B:00.0` and NVML's `00000000:3B:00.0` in one form: `00000000:3B:00`."""
    parts = text.upper().removeprefix("PCI:").partition(".")[0].split(":")
    domain, bus, device = ["0", *parts][-3:]
    return f"{int(domain or '0', 16):08X}:{bus}:{device}"
