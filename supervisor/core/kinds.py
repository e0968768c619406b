"""The kinds of failure, in the field's words. What each one means stands in docs/failure-kinds.md."""

from __future__ import annotations

from enum import Enum


class Kind(str, Enum):
    """Why an attempt ended or must end. `NONE` is a healthy end or a stop by the user."""

    GPU_OOM = "gpu_oom"
    HOST_OOM = "host_oom"
    GPU_FAULT = "gpu_fault"
    CUDA_ERROR = "cuda_error"
    COLLECTIVE_TIMEOUT = "collective_timeout"
    COLLECTIVE_ERROR = "collective_error"
    DISK_FULL = "disk_full"
    SHM_FULL = "shm_full"
    CHECKPOINT_ERROR = "checkpoint_error"
    DATA_ERROR = "data_error"
    NUMERIC = "numeric"
    CODE_ERROR = "code_error"
    ENV_ERROR = "env_error"
    PORT_IN_USE = "port_in_use"
    NETWORK_ERROR = "network_error"
    PREEMPTED = "preempted"
    KILLED = "killed"
    SEGFAULT = "segfault"
    HANG = "hang"
    SILENT_GPU = "silent_gpu"
    STARTUP_TIMEOUT = "startup_timeout"
    LOST_PROGRESS = "lost_progress"
    SLOW = "slow"
    PROTECTED_VIOLATION = "protected_violation"
    EXIT = "exit"
    NONE = "none"

    def __str__(self) -> str:
        return self.value
