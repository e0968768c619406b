"""Folders of a checkpoint: what a trainer's layout says must be in one, and what is missing. Not single files.

Each layout has one function: folder in, the first piece that is missing out, None where it isn't that layout or
where nothing is missing. A contradiction inside the folder (a shard that an index names and that isn't there)
counts always; a piece that a trainer usually writes is asked for only where `strict` (no `resume.complete`).
Pointer files (`latest`) are never believed beyond what they point to.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from typing import Any

from supervisor.edges.checkpoint_folder import Folder, gap
from supervisor.edges.checkpoint_formats import (
    PICKLE_CAP_BYTES,
    Ghost,
    read_json,
    read_pickle,
    read_torch_pickle,
)
from supervisor.edges.checkpoint_huggingface import (
    DEEPSPEED_OPTIMIZER,
    accelerate_fault,
    hugging_face_fault,
    index_fault,
)


def layout_fault(folder: Folder) -> str | None:
    """The first thing that is missing by any layout that this folder has; None where nothing is."""
    for layout in LAYOUTS:
        fault = layout(folder)
        if fault:
            return fault
    return None


# -- torch.distributed.checkpoint, and what builds on it (Megatron core, NeMo, Lightning's sharded .ckpt) -----


def _dcp(folder: Folder) -> str | None:
    shards = folder.matching(r".*\.distcp")
    indexes = folder.matching(r"(__\d+)?\.metadata")
    if folder.matching(r"(__\d+)?\.metadata\.tmp") and shards:
        return ".metadata is being written: the shards and the index may be of two saves"
    if shards and not indexes:
        return ".metadata is missing: not every rank has reported"
    if shards and ".metadata" not in indexes:
        wanting = folder.ranks(r"__(\d+)_\d+\.distcp") - folder.ranks(r"__(\d+)\.metadata")
        if wanting:
            return f"__{min(wanting)}.metadata is missing"
    for name in indexes:
        fault = _dcp_index_fault(folder, name, bool(shards))
        if fault:
            return fault
    if folder.strict and shards and "common.pt" in folder.files and "metadata.json" not in folder.files:
        return "metadata.json is missing: Megatron writes it last"
    if folder.strict and shards and folder.path.endswith(".ckpt") and "meta.pt" not in folder.files:
        return "meta.pt is missing: Lightning writes it after the shards"
    return None


def _dcp_index_fault(folder: Folder, name: str, sure: bool) -> str | None:
    if folder.files[name] > PICKLE_CAP_BYTES:
        return None
    with open(folder.full(name), "rb") as file:
        index = read_pickle(file.read(PICKLE_CAP_BYTES))
    stored = index.get("storage_data") if isinstance(index, Ghost) else None
    if not isinstance(stored, dict):
        return f"{name} does not parse" if sure else None
    for entry in stored.values():
        where = entry.get("relative_path") if isinstance(entry, Ghost) else None
        if not isinstance(where, str) or "/" in where:
            continue
        offset, length = entry.get("offset"), entry.get("length")
        if where not in folder.files:
            return f"{where}, which {name} names, is missing"
        if isinstance(offset, int) and isinstance(length, int) and folder.files[where] < offset + length:
            return f"{where} is cut off: {folder.files[where]} of at least {offset + length} bytes"
    return None


# -- DeepSpeed -----------------------------------------------------------------------------------------------

_MODEL = r"mp_rank_(\d+)_model_states\.pt"
_MODEL_3 = r"zero_pp_rank_(\d+)_mp_rank_\d+_model_states\.pt"


def _deepspeed(folder: Folder) -> str | None:
    models, models_3 = folder.ranks(_MODEL), folder.ranks(_MODEL_3)
    shards: dict[int, set[int]] = {}
    for match in (DEEPSPEED_OPTIMIZER.fullmatch(name) for name in folder.files):
        if match:
            shards.setdefault(int(match[2]), set()).add(int(match[1]))
    if not models and not models_3 and not shards:
        return None
    if not models and not models_3:
        return "mp_rank_00_model_states.pt is missing"
    for what, have in (("mp_rank", models), ("zero_pp_rank", models_3), ("mp_rank", set(shards))):
        missing = gap(have)
        if missing is not None:
            return f"the files of {what} {missing} are missing"
    return _deepspeed_optimizer(folder, models, models_3, shards)


def _deepspeed_optimizer(
    folder: Folder, models: set[int], models_3: set[int], shards: dict[int, set[int]]
) -> str | None:
    for mp, have in shards.items():
        wanting = (models_3 | set(range(max(have) + 1))) - have
        if wanting:
            return f"the optimizer states of zero_pp_rank {min(wanting)}, mp_rank {mp} are missing"
        if models_3 and have - models_3:
            return f"the model states of zero_pp_rank {min(have - models_3)} are missing"
    if shards and models and models != set(shards):
        return f"the optimizer states of mp_rank {min(models ^ set(shards))} do not match its model states"
    said = _deepspeed_said(folder)
    if said is None:
        return None
    ranks = said.get("dp_world_size")
    if not shards:
        zero = "optimizer" in said and said["optimizer"] is None and not folder.matching(r"expp_rank_.*")
        return "the optimizer states are missing" if zero and folder.strict else None
    for mp, have in shards.items():
        if isinstance(ranks, int) and len(have) < ranks:
            return f"{len(have)} of {ranks} optimizer states are there for mp_rank {mp}"
    return None


def _deepspeed_said(folder: Folder) -> dict[Any, Any] | None:
    names = sorted(folder.matching(_MODEL)) or sorted(folder.matching(_MODEL_3))
    said = read_torch_pickle(folder.full(names[0]))
    return said if isinstance(said, dict) else None


def _deepspeed_pointer(folder: Folder) -> str | None:
    """`latest` beside the folder that it names: the loader follows it, and starts from nothing without it."""
    tags = [name for name in folder.folders if re.fullmatch(r"global_step\d+|checkpoint", name)]
    if not tags or not (folder.top or "latest" in folder.files):
        return None
    if "latest" not in folder.files:
        global_steps = [tag for tag in tags if tag != "checkpoint"]
        return "latest is missing: DeepSpeed would start from nothing" if global_steps else None
    with open(folder.full("latest"), "rb") as file:
        tag = file.read(4096).decode("utf-8", "replace").strip()
    if not tag or tag not in folder.folders:
        return f"latest names {tag!r}, which is not there"
    return None


# -- Megatron, NeMo ------------------------------------------------------------------------------------------

_MP = re.compile(r"mp_rank_(\d+)(?:_(\d+))?(?:_(\d+))?")


def _megatron(folder: Folder) -> str | None:
    """The older layout: one folder for each tensor and pipeline rank."""
    ranks = {name: match for name, match in ((n, _MP.fullmatch(n)) for n in folder.folders) if match}
    if not ranks or not folder.top:
        return None
    tensor = {int(match[1]) for match in ranks.values()}
    pipeline = {int(match[2] or 0) for match in ranks.values()}
    have = {(int(match[1]), int(match[2] or 0)) for match in ranks.values()}
    for t in range(max(tensor) + 1):
        for p in range(max(pipeline) + 1):
            if (t, p) not in have:
                return f"the folder of tensor rank {t}, pipeline rank {p} is missing"
    return None


def _megatron_rank(folder: Folder) -> str | None:
    if not _MP.fullmatch(posixpath.basename(folder.path)):
        return None
    if not folder.matching(r"model_.*rng\.pt|model_rng\.pt|model_weights\.ckpt"):
        return f"{posixpath.basename(folder.path)}/model_optim_rng.pt is missing"
    return None


def _megatron_said(folder: Folder) -> str | None:
    """What the run's own arguments, kept in the first rank's file, say about the number of ranks."""
    ranks = sorted(name for name in folder.folders if _MP.fullmatch(name))
    if not ranks or not folder.top:
        return None
    said = read_torch_pickle(folder.full(posixpath.join(ranks[0], "model_optim_rng.pt")))
    args = said.get("args") if isinstance(said, dict) else None
    if not isinstance(args, Ghost):
        return None
    sizes = [args.get(f"{kind}_model_parallel_size") for kind in ("tensor", "pipeline")]
    if not all(isinstance(size, int) for size in sizes):
        return None
    due = sizes[0] * sizes[1]
    return f"{len(ranks)} of {due} rank folders are there" if len(ranks) < due else None


def _megatron_core(folder: Folder) -> str | None:
    """`metadata.json` is written last by rank 0; it must parse."""
    if "metadata.json" not in folder.files:
        return None
    said = read_json(folder.full("metadata.json"))
    if said is None:
        return "metadata.json does not parse"
    if isinstance(said, dict) and said.get("sharded_backend") == "torch_dist":
        has_index = bool(folder.matching(r"(__\d+)?\.metadata"))
        return None if has_index else ".metadata is missing"
    return None


def _nemo(folder: Folder) -> str | None:
    if not folder.top or "context" not in folder.folders:
        return None
    known = folder.folders & {"weights", "model_weights"}
    return "weights is missing beside context" if folder.strict and not known else None


LAYOUTS: tuple[Callable[[Folder], str | None], ...] = (
    hugging_face_fault,
    accelerate_fault,
    _deepspeed_pointer,
    _deepspeed,
    _nemo,
    _megatron,
    _megatron_rank,
    _megatron_said,
    _megatron_core,
    _dcp,
    index_fault,
)
