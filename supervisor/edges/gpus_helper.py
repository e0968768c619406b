"""The one process that calls NVML: JSON lines in on stdin, JSON lines out on stdout. No judgement, no deadline here.

    python -I -m supervisor.edges.gpus_helper [--wake FD] [--nvml MODULE --world DIR]

    {"id": 1, "do": "list"}  →  {"id": 1, "driver": "570.86", "gpus": [{"index", "uuid", "name", "total_mib", "minor",
                                 "mig"}], "unlisted": ["GPU 6: GPU is lost"]}   or   {"id": 1, "code": 9, "why": "..."}
    {"id": 2, "do": "read", "gpus": [UUID, ...], "processes": false}
        →  a line for each GPU once it was read: {"id": 2, "gpu": UUID, "began": s, "index", "used": bytes,
           "total", "reserved", "v2", "util", "temperature", "power", "pids"}  or  {"id", "gpu", "began", "code", "why"}
    {"id": 3, "do": "health", "gpus": [UUID, ...]}
        →  one line: {"id": 3, "health": {UUID: {"pci", "errors", "unfit", "xids"} or {"code", "why"}}}; xids: events
           since the first such request, where this driver tells them

Rule 1: one nvmlInit for life. NVML's first client wakes the GPUs (seconds each), and its last one lets them sleep.
Rule 2: the process may hang in a call for ever (a driver lock held after an Xid). Whoever started it has the deadline.
Rule 3: it ends when stdin closes, when stdout breaks, or with its parent. Standard library and pynvml only.

A byte goes to the wake descriptor after each answered request, so that a reader wakes once, not once for each GPU.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from ctypes import CDLL
from pathlib import Path
from typing import Any

MIB = 2**20
PR_SET_PDEATHSIG = 1  # linux/prctl.h
INIT_AGAIN_S = 5.0  # a failed nvmlInit is repeated, but a request each 100 ms must not become an init each 100 ms
FUNCTION_NOT_FOUND = 13  # nvml.h
ARGUMENT_VERSION_MISMATCH = 25

UNCORRECTED, VOLATILE = 1, 0  # nvml.h: NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC
XID_EVENT = 8  # nvml.h: nvmlEventTypeXidCriticalError
EVENTS_MAX = 64


class Driver:
    """NVML, opened once. Every method raises what `errors` holds, and nothing else that a driver can cause."""

    def __init__(self, nvml: Any) -> None:
        self.nvml = nvml
        # NVMLLibraryMismatchError is no NVMLError; ctypes may raise OSError.
        self.errors = (nvml.NVMLError, nvml.NVMLLibraryMismatchError, OSError)
        self._handles: dict[str, Any] = {}
        self._opened = False
        self._failed: Exception | None = None
        self._failed_at_s = 0.0
        self._has_v2: bool | None = None
        self._events: Any = None
        self._watched: set[str] = set()

    def open(self) -> None:
        """Sees to it that NVML is initialised."""
        if self._opened:
            return
        now = time.monotonic()
        if self._failed is not None and now - self._failed_at_s < INIT_AGAIN_S:
            raise self._failed.with_traceback(None)  # raised again and again, it would grow
        try:
            self.nvml.nvmlInit()
        except self.errors as error:
            self._failed, self._failed_at_s = error, now
            raise
        self._opened, self._failed = True, None

    def listing(self) -> dict[str, Any]:
        """All GPUs. One that does not answer is told under `unlisted`, and hides no other."""
        self.open()
        gpus, unlisted = [], []
        for index in range(self.nvml.nvmlDeviceGetCount()):
            try:
                gpus.append(self._card(index))
            except self.errors as error:
                unlisted.append(f"GPU {index}: {said(error)}")
        return {"driver": self._or(None, self.nvml.nvmlSystemGetDriverVersion), "gpus": gpus, "unlisted": unlisted}

    def _card(self, index: int) -> dict[str, Any]:
        handle = self.nvml.nvmlDeviceGetHandleByIndex(index)
        uuid = str(self.nvml.nvmlDeviceGetUUID(handle))
        self._handles[uuid] = handle
        memory, _ = self._memory(handle)
        return {
            "index": index,
            "uuid": uuid,
            "name": self._or("", self.nvml.nvmlDeviceGetName, handle),
            "total_mib": memory.total / MIB,
            "minor": self._or(None, self.nvml.nvmlDeviceGetMinorNumber, handle),
            "mig": bool(self._or([0, 0], self.nvml.nvmlDeviceGetMigMode, handle)[0]),
        }

    def read(self, uuid: str, processes: bool) -> dict[str, Any]:
        """Memory in bytes, utilisation in percent, °C, milliwatts; None for what this GPU does not tell."""
        self.open()
        if uuid not in self._handles:
            self._handles[uuid] = self.nvml.nvmlDeviceGetHandleByUUID(uuid)
        handle = self._handles[uuid]
        memory, v2 = self._memory(handle)
        rates = self._or(None, self.nvml.nvmlDeviceGetUtilizationRates, handle)
        sensor = self.nvml.NVML_TEMPERATURE_GPU
        return {
            "index": self._or(None, self.nvml.nvmlDeviceGetIndex, handle),
            "used": memory.used,
            "total": memory.total,
            "reserved": memory.reserved if v2 else None,
            "v2": v2,
            "util": None if rates is None else rates.gpu,
            "temperature": self._or(None, self.nvml.nvmlDeviceGetTemperature, handle, sensor),
            "power": self._or(None, self.nvml.nvmlDeviceGetPowerUsage, handle),
            "pids": self._pids(handle) if processes else None,
        }

    def health(self, uuid: str) -> dict[str, Any]:
        """PCI address, uncorrectable memory errors since the driver was loaded, why the GPU needs a reset.

        None for what this GPU does not tell (no ECC, or errors are not counted).
        """
        self.open()
        if uuid not in self._handles:
            self._handles[uuid] = self.nvml.nvmlDeviceGetHandleByUUID(uuid)
        handle = self._handles[uuid]
        self._watch_events(uuid, handle)
        pci = self._call("nvmlDeviceGetPciInfo", handle)
        bus = getattr(pci, "busId", None)
        rows = self._call("nvmlDeviceGetRemappedRows", handle)
        return {
            "pci": bus.decode() if isinstance(bus, bytes) else bus,
            "errors": self._call("nvmlDeviceGetTotalEccErrors", handle, UNCORRECTED, VOLATILE),
            "unfit": _unfit(rows),
            "xids": [],
        }

    def events(self) -> list[tuple[str, int]]:
        """(UUID, code) of the Xid events that wait; does not wait for any."""
        found: list[tuple[str, int]] = []
        while self._events is not None and len(found) < EVENTS_MAX:
            try:
                event = self.nvml.nvmlEventSetWait_v2(self._events, 0)
                found.append((str(self.nvml.nvmlDeviceGetUUID(event.device)), int(event.eventData)))
            except self.errors:  # a timeout: none waits
                break
        return found

    def _watch_events(self, uuid: str, handle: Any) -> None:
        if uuid in self._watched:
            return
        self._watched.add(uuid)
        if self._events is None:
            self._events = self._call("nvmlEventSetCreate")
        if self._events is not None:
            self._call("nvmlDeviceRegisterEvents", handle, XID_EVENT, self._events)

    def _call(self, name: str, *args: Any) -> Any:
        """What the call answers; None where this driver, binding or GPU has no answer."""
        call = getattr(self.nvml, name, None)
        return None if call is None else self._or(None, call, *args)

    def _memory(self, handle: Any) -> tuple[Any, bool]:
        """v2, where the driver has it (v1 counts what the driver reserves as used); and whether it was v2."""
        if self._has_v2 is not False:
            try:
                memory = self.nvml.nvmlDeviceGetMemoryInfo(handle, version=self.nvml.nvmlMemory_v2)
            except self.nvml.NVMLError as error:
                if self._has_v2 or error.value not in (FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH):
                    raise
            else:
                self._has_v2 = True
                return memory, True
        memory = self.nvml.nvmlDeviceGetMemoryInfo(handle)
        self._has_v2 = False
        return memory, False

    def _pids(self, handle: Any) -> list[int] | None:
        """Processes that compute, draw, or do so through MPS; None if NVML does not tell who computes."""
        compute = self._list_of("nvmlDeviceGetComputeRunningProcesses", handle)
        if compute is None:
            return None
        graphics = self._list_of("nvmlDeviceGetGraphicsRunningProcesses", handle) or []
        mps = self._list_of("nvmlDeviceGetMPSComputeRunningProcesses", handle) or []
        return sorted({int(each.pid) for each in (*compute, *graphics, *mps)})

    def _list_of(self, name: str, handle: Any) -> list[Any] | None:
        """By explicit version: the call without one raises on an older driver instead of falling back."""
        for version in ("_v3", "_v2"):
            call = getattr(self.nvml, name + version, None)
            found: list[Any] | None = None if call is None else self._or(None, call, handle)
            if found is not None:
                return found
        return None

    def _or(self, default: Any, call: Callable[..., Any], *args: Any) -> Any:
        """What the call answers, `default` where it fails: for what may be missing without harm."""
        try:
            return call(*args)
        except self.errors:
            return default


def _unfit(rows: Any) -> str | None:
    """`rows`: (corrected, uncorrected, pending, failed) of nvmlDeviceGetRemappedRows."""
    if rows is None:
        return None
    _, _, pending, failed_ = rows
    if failed_:
        return "a row remapping has failed: the GPU is to be replaced"
    return "a row remapping is pending: the GPU needs a reset" if pending else None


def said(error: Exception) -> str:
    """NVML's own words, and its code."""
    value = getattr(error, "value", None)
    return f"{error} (NVML {value})" if isinstance(value, int) else f"{type(error).__name__}: {error}"


def failed(error: Exception) -> dict[str, Any]:
    return {"code": getattr(error, "value", None), "why": said(error)}


def boot_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def answers(driver: Driver, request: dict[str, Any], say: Callable[[dict[str, Any]], None]) -> None:
    """Answers one request. A GPU that cannot be read has its own line and its own reason."""
    number = request["id"]
    if request["do"] == "list":
        try:
            say({"id": number, **driver.listing()})
        except driver.errors as error:
            say({"id": number, **failed(error)})
        return
    if request["do"] == "health":
        say({"id": number, "health": healths(driver, request["gpus"])})
        return
    for uuid in request["gpus"]:
        began = boot_s()
        try:
            seen = driver.read(uuid, bool(request.get("processes")))
        except driver.errors as error:
            seen = failed(error)
        say({"id": number, "gpu": uuid, "began": began, **seen})


def healths(driver: Driver, uuids: list[str]) -> dict[str, dict[str, Any]]:
    """The health of each GPU, with the events that came meanwhile."""
    found: dict[str, dict[str, Any]] = {}
    for uuid in uuids:
        try:
            found[uuid] = driver.health(uuid)
        except driver.errors as error:
            found[uuid] = failed(error)
    for uuid, code in driver.events():
        found.get(uuid, {}).get("xids", []).append(code)
    return found


def end_with_parent() -> None:
    """KILL when the thread that started us ends; at once if it is gone already. A stop costs nothing here."""
    parent = os.getppid()
    CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(0)


def loaded(options: dict[str, str]) -> Any:
    """pynvml, or a module with its call surface that is told its world."""
    nvml: Any = importlib.import_module(options.get("--nvml", "pynvml"))
    if "--world" in options:
        nvml.use(Path(options["--world"]))
    return nvml


def main(argv: list[str]) -> int:
    """Serves until stdin closes."""
    options = dict(zip(argv[::2], argv[1::2], strict=True))
    wake = int(options["--wake"]) if "--wake" in options else None
    out = os.dup(1)
    os.dup2(2, 1)  # a driver that prints must not write into the answers

    def say(answer: dict[str, Any]) -> None:
        os.write(out, json.dumps(answer, separators=(",", ":")).encode() + b"\n")

    def woken() -> None:
        if wake is not None:
            with suppress(BlockingIOError):  # full: whoever reads is awake already
                os.write(wake, b".")

    end_with_parent()
    try:
        driver = Driver(loaded(options))
    except ImportError as error:
        say({"crash": f"{error}; the package nvidia-ml-py belongs to this installation"})
        return 1
    with suppress(*driver.errors):  # each request says why, and tries again
        driver.open()
    say({"ready": True})
    woken()
    for line in sys.stdin.buffer:
        answers(driver, json.loads(line), say)
        woken()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except BrokenPipeError:
        os._exit(0)  # nobody reads any more: our reader is gone, and there is nothing to flush
