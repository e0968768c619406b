"""Checkpoints of each layout, built by hand: bytes of the formats, and one function a layout."""

from __future__ import annotations

import argparse
import io
import json
import pickle
import struct
import sys
import tarfile
import types
import zipfile
from pathlib import Path
from typing import Any


def safetensors(data: bytes = b"\1" * 400) -> bytes:
    header = json.dumps(
        {"__metadata__": {"format": "pt"}, "w": {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}}
    )
    text = header.encode()
    return struct.pack("<Q", len(text)) + text + data


def torch_zip(value: Any = None, name: str = "archive") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(f"{name}/data.pkl", pickle.dumps(value, protocol=2))
        archive.writestr(f"{name}/data/0", b"\2" * 600)
        archive.writestr(f"{name}/version", b"3\n")
    return out.getvalue()


def tar() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in ("model_config.yaml", "model_weights.ckpt"):
            info = tarfile.TarInfo(name)
            info.size = 3000
            archive.addfile(info, io.BytesIO(b"\3" * 3000))
    return out.getvalue()


def foreign(module: str, name: str, **fields: Any) -> Any:
    """An instance of a class that the reader cannot import."""
    made = types.ModuleType(module)
    cls = type(name, (), {"__module__": module})
    setattr(made, name, cls)
    sys.modules[module] = made  # pickle looks there; the caller drops it again
    one = cls()
    one.__dict__.update(fields)
    return one


def pickled(build: Any) -> bytes:
    try:
        return pickle.dumps(build(), protocol=4)
    finally:
        for name in [name for name in sys.modules if name.startswith("elsewhere_")]:
            del sys.modules[name]


def dcp_index(entries: dict[str, int]) -> bytes:
    """`.metadata`: each shard and the number of bytes that must be in it."""

    def build() -> Any:
        stored = {}
        for number, (name, length) in enumerate(entries.items()):
            where = foreign(f"elsewhere_{number}", "_StorageInfo", relative_path=name, offset=8, length=length - 8)
            stored[f"key{number}"] = where
        return foreign("elsewhere_metadata", "Metadata", storage_data=stored, state_dict_metadata={})

    return pickled(build)


def write(root: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def hf(step: int, ranks: int = 1) -> dict[str, bytes]:
    rng = {"rng_state.pth": torch_zip()} if ranks == 1 else {f"rng_state_{r}.pth": torch_zip() for r in range(ranks)}
    return {
        "config.json": b'{"a": 1}\n',
        "model.safetensors": safetensors(),
        "training_args.bin": torch_zip(),
        "optimizer.pt": torch_zip({"state": {}}),
        "scheduler.pt": torch_zip({}),
        **rng,
        "trainer_state.json": json.dumps({"global_step": step, "log_history": []}).encode(),
    }


def hf_sharded(step: int) -> dict[str, bytes]:
    files = hf(step, ranks=2)
    del files["model.safetensors"]
    shards = [f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)]
    index = {"metadata": {}, "weight_map": {f"layer{n}": name for n, name in enumerate(shards)}}
    return {**files, **dict.fromkeys(shards, safetensors()), "model.safetensors.index.json": json.dumps(index).encode()}


def accelerate() -> dict[str, bytes]:
    return {
        "model.safetensors": safetensors(),
        "optimizer.bin": torch_zip(),
        "scheduler.bin": torch_zip(),
        "random_states_0.pkl": torch_zip(),
        "random_states_1.pkl": torch_zip(),
        "random_states_2.pkl": torch_zip(),
    }


def deepspeed(ranks: int = 4, says: bool = True) -> dict[str, bytes]:
    said = {"optimizer": None, "dp_world_size": ranks, "global_steps": 5} if says else None
    shards = {f"bf16_zero_pp_rank_{r}_mp_rank_00_optim_states.pt": torch_zip() for r in range(ranks)}
    return {"mp_rank_00_model_states.pt": torch_zip(said), **shards}


def deepspeed_3(ranks: int = 3) -> dict[str, bytes]:
    files = {}
    for r in range(ranks):
        files[f"zero_pp_rank_{r}_mp_rank_00_model_states.pt"] = torch_zip({"dp_world_size": ranks})
        files[f"zero_pp_rank_{r}_mp_rank_00_optim_states.pt"] = torch_zip()
    return files


def hf_deepspeed(step: int) -> dict[str, bytes]:
    files = hf(step, ranks=4)
    for name in ("optimizer.pt", "scheduler.pt", "model.safetensors"):
        del files[name]
    inside = {f"global_step{step}/{name}": data for name, data in deepspeed(4).items()}
    return {**files, **inside, "latest": f"global_step{step}".encode(), "zero_to_fp32.py": b"# script\n"}


def dcp(ranks: int = 2) -> dict[str, bytes]:
    shards = {f"__{r}_0.distcp": b"\4" * 500 for r in range(ranks)}
    return {**shards, ".metadata": dcp_index(dict.fromkeys(shards, 500))}


def megatron_core() -> dict[str, bytes]:
    said = {"sharded_backend": "torch_dist", "sharded_backend_version": 1, "common_backend": "torch"}
    return {**dcp(), "common.pt": torch_zip(), "metadata.json": json.dumps(said).encode()}


def megatron_old(tensor: int = 2, pipeline: int = 2) -> dict[str, bytes]:
    args = argparse.Namespace(tensor_model_parallel_size=tensor, pipeline_model_parallel_size=pipeline)
    return {
        f"mp_rank_{t:02}_{p:03}/model_optim_rng.pt": torch_zip({"args": args, "iteration": 100})
        for t in range(tensor)
        for p in range(pipeline)
    }


def nemo() -> dict[str, bytes]:
    weights = {f"weights/{name}": data for name, data in megatron_core().items()}
    return {**weights, "context/io.json": b"{}", "context/model.yaml": b"a: 1\n"}


def lightning_sharded() -> dict[str, bytes]:
    return {**dcp(), "meta.pt": torch_zip()}
