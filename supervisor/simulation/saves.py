"""Checkpoints of the stand-in trainer: small, valid, in place only when whole. No choice of one here.

A checkpoint is a directory: `model.safetensors`, `optim.pt` (the zip layout of torch.save) and
`state.json` with `global_step`, which is written last.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import re
import shutil
import struct
import zipfile
from pathlib import Path


def save(path: Path, step: int) -> None:
    """Writes beside `path` under a name that is never a checkpoint, then renames. One that is there stays."""
    if path.exists():
        return
    fresh = path.with_name(f".{path.name}.tmp")
    shutil.rmtree(fresh, ignore_errors=True)  # what a killed trainer left
    fresh.mkdir(parents=True)
    _write(fresh / "model.safetensors", _safetensors(step))
    _write(fresh / "optim.pt", _torch_zip(step))
    _write(fresh / "state.json", json.dumps({"global_step": step}).encode())
    fresh.rename(path)


def save_shard(path: Path, step: int) -> None:
    """One shard of output, in place only when whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.tmp")
    _write(fresh, _safetensors(step))
    fresh.replace(path)


def step_of(path: Path) -> int:
    """The step that a checkpoint was saved at: its own word, else the last number in its name, else 0.

    FileNotFoundError where nothing is there.
    """
    state = path / "state.json"
    if state.exists():
        return int(json.loads(state.read_bytes())["global_step"])
    path.stat()
    numbers = re.findall(r"\d+", path.name)
    return int(numbers[-1]) if numbers else 0


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _safetensors(step: int) -> bytes:
    """One tensor of 1024 floats: 8 bytes of header length, the JSON header, the data."""
    data = struct.pack("<1024f", *([float(step)] * 1024))
    header = {
        "__metadata__": {"format": "pt", "step": str(step)},
        "drafter.weight": {"dtype": "F32", "shape": [32, 32], "data_offsets": [0, len(data)]},
    }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def _torch_zip(step: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"step": step, "state": {}}, protocol=2))
        archive.writestr("archive/byteorder", "little")
        archive.writestr("archive/version", "3\n")
    return buffer.getvalue()
