"""Simulated NVML: the calls of pynvml that the GPU helper uses, over a `World`. No state of its own but that.

Same names, same exception classes, same return codes; a contract test runs against both.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

from supervisor.simulation.world import TOTAL_MIB as TOTAL_MIB
from supervisor.simulation.world import SimulatedGpu
from supervisor.simulation.world import World as World

MIB = 2**20

NVML_SUCCESS = 0
NVML_ERROR_UNINITIALIZED = 1
NVML_ERROR_INVALID_ARGUMENT = 2
NVML_ERROR_NOT_SUPPORTED = 3
NVML_ERROR_NOT_FOUND = 6
NVML_ERROR_DRIVER_NOT_LOADED = 9
NVML_ERROR_LIBRARY_NOT_FOUND = 12
NVML_ERROR_FUNCTION_NOT_FOUND = 13
NVML_ERROR_GPU_IS_LOST = 15
NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18
NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25
NVML_ERROR_UNKNOWN = 999

NVML_TEMPERATURE_GPU = 0
nvmlMemory_v2 = 0x02000028  # size 40 in the low bytes, version 2 in the top byte, as in nvml.h


class NVMLLibraryMismatchError(Exception):
    """Same name as in pynvml; the simulation never raises it."""


class NVMLError(Exception):
    """An NVML return code; `NVMLError(15)` makes an `NVMLError_GpuIsLost`, as in pynvml."""

    value = NVML_ERROR_UNKNOWN
    _by_value: ClassVar[dict[int, type[NVMLError]]] = {}
    _texts: ClassVar[dict[int, str]] = {}

    def __new__(cls, value: int | None = None) -> NVMLError:
        kind = cls._by_value.get(value, cls) if cls is NVMLError and value is not None else cls
        made = super().__new__(kind)
        if value is not None:
            made.value = value
        return made

    def __str__(self) -> str:
        return self._texts.get(self.value, f"NVML Error with code {self.value}")


def _error(value: int, name: str, text: str) -> type[NVMLError]:
    made = type(f"NVMLError_{name}", (NVMLError,), {"value": value, "__module__": __name__})
    NVMLError._by_value[value] = made
    NVMLError._texts[value] = text
    return made


NVMLError_Uninitialized = _error(NVML_ERROR_UNINITIALIZED, "Uninitialized", "Uninitialized")
NVMLError_InvalidArgument = _error(NVML_ERROR_INVALID_ARGUMENT, "InvalidArgument", "Invalid Argument")
NVMLError_NotSupported = _error(NVML_ERROR_NOT_SUPPORTED, "NotSupported", "Not Supported")
NVMLError_NotFound = _error(NVML_ERROR_NOT_FOUND, "NotFound", "Not Found")
NVMLError_DriverNotLoaded = _error(NVML_ERROR_DRIVER_NOT_LOADED, "DriverNotLoaded", "Driver Not Loaded")
NVMLError_LibraryNotFound = _error(NVML_ERROR_LIBRARY_NOT_FOUND, "LibraryNotFound", "NVML Shared Library Not Found")
NVMLError_FunctionNotFound = _error(NVML_ERROR_FUNCTION_NOT_FOUND, "FunctionNotFound", "Function Not Found")
NVMLError_GpuIsLost = _error(NVML_ERROR_GPU_IS_LOST, "GpuIsLost", "GPU is lost")
NVMLError_LibRmVersionMismatch = _error(
    NVML_ERROR_LIB_RM_VERSION_MISMATCH, "LibRmVersionMismatch", "RM has detected an NVML/RM version mismatch."
)
NVMLError_ArgumentVersionMismatch = _error(
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH, "ArgumentVersionMismatch", "Argument version mismatch"
)
NVMLError_Unknown = _error(NVML_ERROR_UNKNOWN, "Unknown", "Unknown Error")


_place: Path | None = None
_world: World | None = None


def use(directory: Path) -> None:
    """The world that `nvmlInit` opens. The only call here that pynvml does not have."""
    global _place
    _place = directory


def nvmlInit() -> None:
    """Opens the world. LibraryNotFound where there is none; `init_error` where one is set."""
    global _world
    if _place is None or not (_place / "world.json").exists():
        raise NVMLError(NVML_ERROR_LIBRARY_NOT_FOUND)
    world = World(_place)
    error = int(world.read().get("init_error", NVML_SUCCESS))
    if error:
        raise NVMLError(error)
    _world = world


def nvmlShutdown() -> None:
    """Closes the world; every later call answers Uninitialized."""
    global _world
    _opened()
    _world = None


def nvmlErrorString(value: int) -> str:
    """The text of a return code."""
    return str(NVMLError(value))


def nvmlSystemGetDriverVersion() -> str:
    """`simulated`: what a person reads where the driver's version would stand."""
    _opened()
    return "simulated"


def nvmlDeviceGetCount() -> int:
    """How many GPUs there are."""
    return len(_opened().gpus())


def nvmlDeviceGetHandleByIndex(index: int) -> SimulatedGpu:
    """The handle of a GPU. InvalidArgument where there is none."""
    for card in _opened().gpus():
        if card.index == index:
            return _healthy(card)
    raise NVMLError(NVML_ERROR_INVALID_ARGUMENT)


def nvmlDeviceGetHandleByUUID(uuid: str | bytes) -> SimulatedGpu:
    """The handle of a GPU. NotFound where there is none."""
    wanted = uuid.decode() if isinstance(uuid, bytes) else uuid
    for card in _opened().gpus():
        if card.uuid == wanted:
            return _healthy(card)
    raise NVMLError(NVML_ERROR_NOT_FOUND)


def nvmlDeviceGetUUID(handle: SimulatedGpu) -> str:
    """`GPU-…`, the identity of a GPU."""
    return _now(handle).uuid


def nvmlDeviceGetName(handle: SimulatedGpu) -> str:
    """The model's name."""
    return _now(handle).name


def nvmlDeviceGetIndex(handle: SimulatedGpu) -> int:
    """The index that leads to this handle."""
    return _now(handle).index


def nvmlDeviceGetMinorNumber(handle: SimulatedGpu) -> int:
    """N of /dev/nvidiaN: here the index."""
    return _now(handle).index


def nvmlDeviceGetMemoryInfo(handle: SimulatedGpu, version: int | None = None) -> SimpleNamespace:
    """Bytes: v2 keeps `reserved` apart from `used`, v1 counts it as used, as drivers do."""
    card = _now(handle)
    world = _opened()
    used = round(world.used_mib(card.index) * MIB)
    reserved = round(float(world.read()["reserved_mib"]) * MIB)
    total = round(card.total_mib * MIB)
    if version is None:
        return SimpleNamespace(total=total, free=max(0, total - used - reserved), used=used + reserved)
    if version != nvmlMemory_v2:
        raise NVMLError(NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
    free = max(0, total - used - reserved)
    return SimpleNamespace(version=version, total=total, reserved=reserved, free=free, used=used)


def nvmlDeviceGetUtilizationRates(handle: SimulatedGpu) -> SimpleNamespace:
    """Percent, whole numbers."""
    card = _now(handle)
    return SimpleNamespace(gpu=round(_opened().util_pct(card.index)), memory=0)


def nvmlDeviceGetTemperature(handle: SimulatedGpu, sensor: int) -> int:
    """°C: 30 at rest, 70 at full load."""
    card = _now(handle)
    return 30 + round(0.4 * _opened().util_pct(card.index))


def nvmlDeviceGetPowerUsage(handle: SimulatedGpu) -> int:
    """Milliwatts: 70 W at rest, 600 W at full load."""
    card = _now(handle)
    return 70_000 + round(5_300 * _opened().util_pct(card.index))


def nvmlDeviceGetMigMode(handle: SimulatedGpu) -> list[int]:
    """[current, pending]: always off."""
    _now(handle)
    return [0, 0]


def nvmlDeviceGetComputeRunningProcesses_v3(handle: SimulatedGpu) -> list[SimpleNamespace]:
    """Processes that hold memory: pid and bytes."""
    card = _now(handle)
    held = [each for each in _opened().held(card.index) if each.left == 1.0]
    return [SimpleNamespace(pid=each.pid, usedGpuMemory=round(each.mib * MIB)) for each in held]


def nvmlDeviceGetGraphicsRunningProcesses_v3(handle: SimulatedGpu) -> list[SimpleNamespace]:
    """None: nothing draws here."""
    _now(handle)
    return []


def _opened() -> World:
    if _world is None:
        raise NVMLError(NVML_ERROR_UNINITIALIZED)
    return _world


def _now(handle: SimulatedGpu) -> SimulatedGpu:
    """That GPU as it is now, by UUID: a handle outlives changes of the world."""
    for card in _opened().gpus():
        if card.uuid == handle.uuid:
            return _healthy(card)
    raise NVMLError(NVML_ERROR_GPU_IS_LOST)


def _healthy(card: SimulatedGpu) -> SimulatedGpu:
    if card.error:
        raise NVMLError(card.error)
    return card
