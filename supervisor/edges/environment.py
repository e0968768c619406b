"""The fingerprint of a job's environment: started, polled, never waited for by the loop. Nothing is compared here.

The work is done by `environment_probe.py`, run by the job's own interpreter; torch is never imported. Values of
environment variables pass through the caller's `redact` before they are kept.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from supervisor.core.evidence import Gpu

SCHEMA = "supervise.environment/v1"
PROBE = Path(__file__).with_name("environment_probe.py")
DRIVER_FILE = "/proc/driver/nvidia/version"
OUTPUT_CAP_BYTES = 8 * 2**20
REAPED_WITHIN_S = 1.0
GIT_S = 2.0
"""A status of a very large work tree on a network disk may take longer: then it is told as not known."""

TOLD_PREFIXES = (
    "PYTORCH_", "CUDA_", "NCCL_", "TORCH", "CUBLAS_", "CUDNN_", "NVIDIA_", "NVTE_", "XLA_", "TF_", "JAX_", "OMP_",
    "MKL_", "OPENBLAS_", "MALLOC_", "UCX_", "FI_", "GLOO_", "FLASH_", "TRITON_", "DEEPSPEED_", "DS_", "ACCELERATE_",
)  # fmt: skip
TOLD_NAMES = ("LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHASHSEED", "TOKENIZERS_PARALLELISM")


class Fingerprint:
    """A fingerprint that is being taken. `poll` now and then; `close` when it is not wanted any more."""

    def __init__(
        self,
        child: subprocess.Popen[bytes] | None,
        out: IO[bytes],
        err: IO[bytes],
        known: dict[str, Any],
        deadline_s: float,
        *,
        wants_data: bool = False,
    ) -> None:
        self._wants_data = wants_data
        self._child, self._out, self._err = child, out, err
        self._known = known
        self._ends_at = time.monotonic() + deadline_s
        self._deadline_s = deadline_s
        self._result: dict[str, Any] | None = None

    def poll(self) -> dict[str, Any] | None:
        """The fingerprint, None while it is being taken. Never waits; past the deadline it is what is known."""
        if self._result is None:
            if self._child is None:
                self._finish({}, "")
            elif self._child.poll() is not None:
                self._finish(*self._answer())
            elif time.monotonic() >= self._ends_at:
                told, _ = self._answer()
                late = f"the job's interpreter did not answer within {self._deadline_s:g} s"
                self._finish(told, "" if told else late)
        return self._result

    def wait(self) -> dict[str, Any]:
        """The fingerprint, waited for until its deadline. Not for the loop."""
        if self._child is not None and self._result is None:
            try:
                self._child.wait(max(0.0, self._ends_at - time.monotonic()))
            except subprocess.TimeoutExpired:
                self._ends_at = 0.0
        result = self.poll()
        assert result is not None, "the child is gone or out of time: poll always tells then"
        return result

    def close(self) -> None:
        """Ends what still runs. Safe to call at any time, and twice."""
        if self._child is not None and self._child.poll() is None:
            self._child.kill()
            with suppress(subprocess.TimeoutExpired):  # on a dead disk: it goes when the disk answers
                self._child.wait(REAPED_WITHIN_S)
        self._out.close()
        self._err.close()

    def _answer(self) -> tuple[dict[str, Any], str]:
        self._out.seek(0)
        self._err.seek(0)
        try:
            told = [json.loads(line) for line in self._out.read(OUTPUT_CAP_BYTES).splitlines()]
        except ValueError:
            told = []
        if not told:
            last = self._err.read(OUTPUT_CAP_BYTES).decode("utf-8", "replace").strip().rpartition("\n")[2]
            return {}, f"the job's interpreter could not tell: {last[:300] or 'it said nothing'}"
        if not all(isinstance(one, dict) for one in told):
            return {}, "the job's interpreter told no document"
        return {name: value for one in told for name, value in one.items()}, ""

    def _finish(self, told: dict[str, Any], why: str) -> None:
        unknown = {**self._known.pop("unknown", {}), **told.pop("unknown", {})}
        if why:
            unknown["probe"] = why
        if self._wants_data and "data" not in told:
            unknown["data"] = f"not told within {self._deadline_s:g} s"
        self._result = {"schema": SCHEMA, **self._known, **told, "unknown": unknown}
        self.close()


def start_fingerprint(
    *,
    workdir: str,
    argv: Sequence[str],
    environ: Mapping[str, str],
    venv: str | None,
    redact: Callable[[str], str],
    gpus: Iterable[Gpu] = (),
    data: Sequence[str] = (),
    protect: Sequence[str] = (),
    deadline_s: float = 5.0,
    driver_file: str = DRIVER_FILE,
) -> Fingerprint:
    """Starts taking the fingerprint of what would run `argv` in `workdir` with `environ`. Returns at once."""
    known: dict[str, Any] = {
        "variables": {name: redact(value) for name, value in sorted(environ.items()) if _is_told(name)},
        "gpus": [{"index": g.index, "uuid": g.uuid, "name": g.name, "total_mib": g.total_mib} for g in gpus],
        "unknown": {},
    }
    interpreter, why = _interpreter(venv, argv, environ)
    if why:
        known["unknown"]["python"] = why
    request = {
        "workdir": workdir,
        "argv": list(argv),
        "is_job_python": interpreter is not None,
        "library_path": environ.get("LD_LIBRARY_PATH", ""),
        "driver_file": driver_file,
        "git_s": min(GIT_S, deadline_s),
        "data": list(data),
        "protect": list(protect),
    }
    import tempfile

    out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - closed by Fingerprint.close
    try:
        child = subprocess.Popen(
            [interpreter or sys.executable, "-B", str(PROBE), json.dumps(request)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=_clean(environ),
            cwd="/",
        )
    except OSError as error:
        known["unknown"]["probe"] = f"{interpreter} cannot be run: {error.strerror}"
        return Fingerprint(None, out, err, known, deadline_s)
    return Fingerprint(child, out, err, known, deadline_s, wants_data=bool(data))


def _is_told(name: str) -> bool:
    return name.startswith(TOLD_PREFIXES) or name in TOLD_NAMES


def _interpreter(venv: str | None, argv: Sequence[str], environ: Mapping[str, str]) -> tuple[str | None, str]:
    """The interpreter that the job would use, and why there is none."""
    import shutil

    path = environ.get("PATH", os.defpath)
    if venv is not None:
        for name in ("python", "python3"):
            candidate = os.path.join(venv, "bin", name)  # noqa: PTH118 - not resolved: a venv is known by its link
            if os.access(candidate, os.X_OK):
                return candidate, ""
        return None, f"{venv}/bin/python is not there or not executable"
    first = argv[0] if argv else ""
    named = [first] if re.fullmatch(r"python[\d.]*", first.rpartition("/")[2]) else []
    for name in (*named, "python3", "python"):
        found = shutil.which(name, path=path)
        if found:
            return found, ""
    return None, "no python in the job's PATH, and the spec names no venv"


def _clean(environ: Mapping[str, str]) -> dict[str, str]:
    """The job's environment less what is the supervisor's or would put the interpreter elsewhere."""
    dropped = ("PYTHONHOME", "PYTHONSTARTUP", "PYTHONINSPECT", "PYTHONPROFILEIMPORTTIME", "PYTHONVERBOSE")
    return {k: v for k, v in environ.items() if not k.startswith("SUPERVISE_") and k not in dropped}
