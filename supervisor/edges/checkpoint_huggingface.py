"""Folders of the Hugging Face Trainer, of Accelerate, and sharded weights with an index. See checkpoint_layouts.

Order of writing in transformers 5.24 (`trainer.py`): weights, optimizer and scheduler, random state, and
`trainer_state.json` last on rank 0; what other ranks owe is known from the numbers in the names only.
"""

from __future__ import annotations

import re

from supervisor.edges.checkpoint_folder import Folder, gap, listed
from supervisor.edges.checkpoint_formats import Ghost, read_json, read_torch_pickle

DEEPSPEED_OPTIMIZER = re.compile(r"(?:bf16_|fp16_)?zero_pp_rank_(\d+)_mp_rank_(\d+)_?optim_states\.pt")


def index_fault(folder: Folder) -> str | None:
    for name in folder.matching(r".*\.index\.json"):
        index = read_json(folder.full(name))
        shards = index.get("weight_map") if isinstance(index, dict) else None
        if not isinstance(shards, dict):
            return f"{name} does not parse"
        for shard in sorted({str(value) for value in shards.values()}):
            if not folder.files.get(shard):
                return f"{shard}, which {name} names, is missing"
    return _numbered_shards(folder)


def _numbered_shards(folder: Folder) -> str | None:
    series: dict[tuple[str, int, str], set[int]] = {}
    for name in folder.files:
        match = re.fullmatch(r"(.*)-(\d{5})-of-(\d{5})(\.\w+)", name)
        if match:
            series.setdefault((match[1], int(match[3]), match[4]), set()).add(int(match[2]))
    for (stem, count, suffix), have in series.items():
        for number in range(1, count + 1):
            if number not in have:
                return f"{stem}-{number:05}-of-{count:05}{suffix} is missing"
        index = f"{stem}{suffix}.index.json"
        if folder.strict and stem in ("model", "pytorch_model") and index not in folder.files:
            return f"{index} is missing"
    return None


_HF_OPTIMIZER = r"optimizer\.(pt|bin)|.*optimizer.*\.(pt|bin|safetensors)"
_HF_ASIDE = r"optimizer.*|scheduler.*|rng_state.*|training_args\.bin|scaler\.pt|random_states.*|sampler.*"


def hugging_face_fault(folder: Folder) -> str | None:
    signs = folder.matching(r"rng_state(_\d+)?\.pth|training_args\.bin|scheduler\.pt")
    if not folder.top or ("trainer_state.json" not in folder.files and not signs):
        return None
    if "trainer_state.json" not in folder.files:
        named = re.search(r"checkpoint-\d+$", folder.path)
        return "trainer_state.json is missing: it is written last" if folder.strict and named else None
    state = read_json(folder.full("trainer_state.json"))
    if not isinstance(state, dict):
        return "trainer_state.json does not parse"
    step = state.get("global_step")
    if isinstance(step, int) and folder.step is not None and step != folder.step:
        return f"trainer_state.json is of step {step}"
    ranks = folder.ranks(r"rng_state_(\d+)\.pth")
    missing = gap(ranks, at_least=_optimizer_shards(folder) if ranks else 0)
    if missing is not None:
        return f"rng_state_{missing}.pth is missing"
    return _hugging_face_pieces(folder) if folder.strict else None


def _optimizer_shards(folder: Folder) -> int:
    """How many ranks DeepSpeed's folder below this one speaks of."""
    tags = sorted(name for name in folder.folders if re.fullmatch(r"global_step\d+", name))
    return sum(bool(DEEPSPEED_OPTIMIZER.fullmatch(name)) for tag in tags[-1:] for name in listed(folder.full(tag)))


def _hugging_face_pieces(folder: Folder) -> str | None:
    sharded = any(re.fullmatch(r"global_step\d+|pytorch_model_fsdp_\d+", name) for name in folder.folders)
    if not sharded and not _weights(folder):
        return "the model's weights are missing"
    if _save_only_model(folder):
        return None
    deepspeed = any(re.fullmatch(r"global_step\d+", name) for name in folder.folders)
    optimizer = deepspeed or any(re.fullmatch(r"optimizer(_\d+)?", name) for name in folder.folders)
    if not optimizer and not folder.matching(_HF_OPTIMIZER):
        return "optimizer.pt is missing"
    if not deepspeed and "scheduler.pt" not in folder.files:
        return "scheduler.pt is missing"
    if not folder.matching(r"rng_state(_\d+)?\.pth"):
        return "rng_state.pth is missing"
    return None


def _weights(folder: Folder) -> bool:
    named = folder.matching(r".*\.(safetensors|bin|pt|pth|h5|msgpack)|.*\.index\.json")
    return any(not re.fullmatch(_HF_ASIDE, name) for name in named)


def _save_only_model(folder: Folder) -> bool:
    args = read_torch_pickle(folder.full("training_args.bin"))
    return isinstance(args, Ghost) and args.get("save_only_model") is True


def accelerate_fault(folder: Folder) -> str | None:
    random = folder.ranks(r"random_states_(\d+)\.pkl")
    if not folder.top or not (random or "optimizer.bin" in folder.files) or "trainer_state.json" in folder.files:
        return None
    missing = gap(random)
    if missing is not None:
        return f"random_states_{missing}.pkl is missing"
    if not folder.strict:
        return None
    if not random:
        return "random_states_0.pkl is missing: Accelerate writes it after the rest"
    if not folder.folders and not _weights(folder):
        return "the model's weights are missing"
    if not folder.folders and not folder.matching(r"optimizer(_\d+)?\.(bin|pt)"):
        return "optimizer.bin is missing"
    return None
