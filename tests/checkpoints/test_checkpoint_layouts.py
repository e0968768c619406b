"""Completeness judged from outside: every layout whole, and with each of its pieces gone in turn."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from layouts import (
    accelerate,
    dcp,
    deepspeed,
    deepspeed_3,
    foreign,
    hf,
    hf_deepspeed,
    hf_sharded,
    lightning_sharded,
    megatron_core,
    megatron_old,
    nemo,
    pickled,
    safetensors,
    tar,
    torch_zip,
    write,
)

from supervisor.core.evidence import Checkpoint, Incomplete
from supervisor.core.spec import Resume
from supervisor.edges.checkpoint_formats import read_torch_pickle
from supervisor.edges.checkpoints import describe

DATA = Path(__file__).parent / "data"

WHOLE = {
    "checkpoint-70": hf(70),
    "checkpoint-71": hf(71, ranks=4),
    "checkpoint-72": hf_sharded(72),
    "checkpoint-73": hf_deepspeed(73),
    "accelerate_step_74": accelerate(),
    "global_step75": deepspeed(),
    "global_step76": deepspeed_3(),
    "step-77": dcp(),
    "iter_0000078": megatron_core(),
    "iter_0000079": megatron_old(),
    "model--step=80-loss=2.1": nemo(),
    "epoch=1-step=81.ckpt": lightning_sharded(),
    "step_82": {"model.pt": torch_zip(), "optimizer.pt": torch_zip()},
    "step_83": {"model.safetensors": safetensors()},
}

NOT_NOTICED = {
    ("checkpoint-70", "config.json"),
    ("checkpoint-70", "training_args.bin"),
    ("checkpoint-71", "config.json"),
    ("checkpoint-71", "training_args.bin"),
    ("checkpoint-71", "rng_state_3.pth"),  # nothing in the folder says how many ranks there were
    ("checkpoint-72", "config.json"),
    ("checkpoint-72", "training_args.bin"),
    ("checkpoint-72", "rng_state_1.pth"),
    ("checkpoint-73", "config.json"),
    ("checkpoint-73", "training_args.bin"),
    ("checkpoint-73", "zero_to_fp32.py"),
    ("accelerate_step_74", "scheduler.bin"),  # optional
    ("accelerate_step_74", "random_states_2.pkl"),
    ("iter_0000078", "common.pt"),
    ("model--step=80-loss=2.1", "weights/common.pt"),
    ("model--step=80-loss=2.1", "context/io.json"),
    ("model--step=80-loss=2.1", "context/model.yaml"),
    ("step_82", "model.pt"),
    ("step_82", "optimizer.pt"),  # a layout of one's own: resume.complete says what must be there
}
WEIGHTS = (".safetensors", ".pt", ".bin", ".pth", ".pkl")
PIECES = [(name, piece) for name, files in WHOLE.items() for piece in files]


def resume(root: Path, *complete: str) -> Resume:
    return Resume(from_=f"{root}/*", complete=complete)


def look(path: Path, *complete: str) -> Checkpoint | Incomplete:
    return describe(str(path), resume(path.parent, *complete))


def why(path: Path, *complete: str) -> str:
    found = look(path, *complete)
    assert isinstance(found, Incomplete), found
    return found.why


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_checkpoint_of_each_layout_is_complete(tmp_path, name):
    found = look(write(tmp_path / name, WHOLE[name]))
    assert isinstance(found, Checkpoint), found
    assert found.step >= 70


@pytest.mark.parametrize(("name", "piece"), PIECES)
def test_with_a_piece_gone_it_is_incomplete(tmp_path, name, piece):
    root = write(tmp_path / name, WHOLE[name])
    (root / piece).unlink()
    found = look(root)
    only = len(WHOLE[name]) == 1
    assert isinstance(found, Checkpoint) == ((name, piece) in NOT_NOTICED and not only), found


@pytest.mark.parametrize(("name", "piece"), PIECES)
def test_with_a_piece_cut_in_half_it_is_incomplete(tmp_path, name, piece):
    root = write(tmp_path / name, WHOLE[name])
    data = WHOLE[name][piece]
    (root / piece).write_bytes(data[: len(data) // 2])
    told = piece.endswith((*WEIGHTS, ".distcp", ".metadata", "latest", ".json"))
    assert isinstance(look(root), Incomplete) == told


@pytest.mark.parametrize("name", WHOLE)
def test_weights_of_the_right_size_that_are_all_zeros_were_not_written(tmp_path, name):
    """What a power cut leaves where the size was on the disk and the data was not."""
    files = WHOLE[name]
    pieces = [piece for piece in files if piece.endswith((".safetensors", ".pt", ".pth", ".ckpt", ".nemo", ".pkl"))]
    for piece in pieces:
        root = write(tmp_path / piece.replace("/", "_") / name, files)
        (root / piece).write_bytes(bytes(len(files[piece])))
        assert "begins with zeros" in why(root)


def test_a_step_that_differs_from_trainer_state_is_incomplete(tmp_path):
    assert "of step 60" in why(write(tmp_path / "checkpoint-70", hf(60)))


def test_a_model_only_checkpoint_is_complete_where_the_arguments_say_so(tmp_path):
    files = {name: hf(70)[name] for name in ("config.json", "model.safetensors", "trainer_state.json")}
    root = write(tmp_path / "checkpoint-70", files)
    assert "optimizer.pt" in why(root)
    args = foreign("elsewhere_args", "TrainingArguments", save_only_model=True)
    write(root, {"training_args.bin": pickled_torch(args)})
    assert isinstance(look(root), Checkpoint)


def pickled_torch(value: object) -> bytes:
    import io
    import zipfile

    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("archive/data.pkl", pickled(lambda: value))
    return out.getvalue()


def test_the_last_optimizer_shard_is_missed_because_the_model_file_counts_the_ranks(tmp_path):
    files = deepspeed(4)
    del files["bf16_zero_pp_rank_3_mp_rank_00_optim_states.pt"]
    assert "3 of 4" in why(write(tmp_path / "global_step5", files))


def test_a_deepspeed_model_without_zero_needs_no_shards(tmp_path):
    files = {"mp_rank_00_model_states.pt": torch_zip({"optimizer": {"state": 1}, "dp_world_size": 8})}
    assert isinstance(look(write(tmp_path / "global_step5", files)), Checkpoint)


def test_experts_with_optimizers_of_their_own_need_no_shards(tmp_path):
    files = {
        "mp_rank_00_model_states.pt": torch_zip({"optimizer": None, "dp_world_size": 8}),
        "expp_rank_0_mp_rank_00_optim_states.pt": torch_zip(),
    }
    assert isinstance(look(write(tmp_path / "global_step5", files)), Checkpoint)


def test_deepspeed_shards_without_a_model_are_incomplete(tmp_path):
    files = {name: data for name, data in deepspeed().items() if "optim" in name}
    assert "model_states" in why(write(tmp_path / "global_step5", files))


def test_deepspeed_whose_tensor_ranks_do_not_match_is_incomplete(tmp_path):
    files = {**deepspeed(1), "mp_rank_01_model_states.pt": torch_zip()}
    assert "mp_rank 1" in why(write(tmp_path / "global_step5", files))
    files["mp_rank_03_model_states.pt"] = torch_zip()
    assert "mp_rank 2" in why(write(tmp_path / "global_step6", files))


def test_an_empty_latest_would_start_from_nothing(tmp_path):
    root = write(tmp_path / "checkpoint-73", {**hf_deepspeed(73), "latest": b""})
    assert "latest names ''" in why(root)


def test_a_pointer_file_is_a_hint_and_not_a_checkpoint(tmp_path):
    write(tmp_path, {"latest_checkpointed_iteration.txt": b"100\n", "latest": b"global_step100"})
    assert "hint" in why(tmp_path / "latest")
    assert "hint" in why(tmp_path / "latest_checkpointed_iteration.txt")


def test_an_index_that_is_being_rewritten_is_incomplete(tmp_path):
    root = write(tmp_path / "step-5", {**dcp(), ".metadata.tmp": b"x"})
    assert "being written" in why(root)


def test_without_collectives_every_rank_has_an_index_of_its_own(tmp_path):
    files = dcp()
    index = files.pop(".metadata")
    root = write(tmp_path / "step-5", {**files, "__0.metadata": index})
    assert "__1.metadata" in why(root)
    write(root, {"__1.metadata": index})
    assert isinstance(look(root), Checkpoint)


def test_an_index_whose_shards_were_pruned_is_incomplete(tmp_path):
    root = write(tmp_path / "step-5", {".metadata": dcp()[".metadata"], "extra.txt": b"x"})
    assert "is missing" in why(root)


def test_a_hidden_file_that_is_no_index_is_nobodys_business(tmp_path):
    root = write(tmp_path / "step-5", {".metadata": b"something else", "model.pt": torch_zip()})
    assert isinstance(look(root), Checkpoint)


def test_megatron_counts_its_ranks_by_the_runs_own_arguments(tmp_path):
    files = {name: data for name, data in megatron_old(2, 2).items() if name.startswith("mp_rank_00")}
    assert "2 of 4" in why(write(tmp_path / "iter_0000010", files))


def test_nemo_context_without_weights_is_incomplete(tmp_path):
    assert "weights" in why(write(tmp_path / "m--step=5", {"context/io.json": b"{}"}))


def test_shards_whose_index_is_not_written_yet_are_incomplete(tmp_path):
    names = [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    root = write(tmp_path / "step_5", dict.fromkeys(names, safetensors()))
    assert "index.json" in why(root)
    assert isinstance(look(root, "*.safetensors"), Checkpoint)


def test_an_index_that_does_not_parse_is_incomplete(tmp_path):
    files = {"model.safetensors.index.json": b'["no", "map"]', "model.safetensors": safetensors()}
    assert "does not parse" in why(write(tmp_path / "step_5", files))


def test_the_real_thing_written_by_torch(tmp_path):
    shutil.copytree(DATA / "dcp", tmp_path / "step_690")
    assert isinstance(look(tmp_path / "step_690"), Checkpoint)
    shard = tmp_path / "step_690" / "__0_0.distcp"
    shard.write_bytes(shard.read_bytes()[:-1])
    assert "cut off" in why(tmp_path / "step_690")
    for name in ("torch_2_14.pt", "torch_legacy.pt", "m.safetensors"):
        shutil.copy(DATA / name, tmp_path / f"5{name}")
        assert isinstance(look(tmp_path / f"5{name}"), Checkpoint)


@pytest.mark.parametrize("at", [4, 20, 100, -1])
def test_a_safetensors_file_cut_anywhere_is_noticed(tmp_path, at):
    path = tmp_path / "5.safetensors"
    path.write_bytes(safetensors()[:at])
    assert "cut off" in why(path)


def test_safetensors_with_a_broken_or_short_header_are_noticed(tmp_path):
    path = tmp_path / "5.safetensors"
    path.write_bytes(safetensors() + b"more")
    assert "longer" in why(path)
    path.write_bytes(safetensors().replace(b'"data_offsets"', b'"data_offsetz"'))
    assert "broken" in why(path)


@pytest.mark.parametrize("name", ["5.pt", "5.ckpt", "5.bin", "5"])
def test_a_torch_file_cut_anywhere_is_noticed(tmp_path, name):
    whole = torch_zip()
    path = tmp_path / name
    for at in range(30, len(whole), 97):
        path.write_bytes(whole[:at])
        assert "cut off" in why(path)


def test_a_torch_file_with_a_damaged_description_is_noticed(tmp_path):
    path = tmp_path / "5.pt"
    whole = bytearray(torch_zip({"a": "bbbbbbbb"}))
    whole[whole.index(b"bbbb")] ^= 1
    path.write_bytes(bytes(whole))
    assert "damaged" in why(path)


def test_a_zip_without_a_description_is_no_torch_file(tmp_path):
    import zipfile

    with zipfile.ZipFile(tmp_path / "5.pt", "w") as archive:
        archive.writestr("x", b"y")
    assert "data.pkl" in why(tmp_path / "5.pt")


def test_a_nemo_archive_that_is_cut_is_noticed(tmp_path):
    path = tmp_path / "5.nemo"
    path.write_bytes(tar())
    assert isinstance(look(path), Checkpoint)
    path.write_bytes(tar()[:5000])
    assert "cut off" in why(path)


def test_a_file_without_the_formats_magic_is_not_judged_by_its_name(tmp_path):
    root = write(tmp_path / "step_5", {"model.pt": b"weights", "model.safetensors": b"weights of a stand-in"})
    assert isinstance(look(root), Checkpoint)


def test_reading_a_pickle_runs_nothing_in_it(tmp_path):
    class Evil:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    import pickle

    root = write(tmp_path / "step-5", {**dcp(), ".metadata": pickle.dumps({"a": Evil()})})
    assert "does not parse" in why(root)
    assert not (tmp_path / "ran").exists()


def test_the_users_globs_must_match_files_that_are_not_empty(tmp_path):
    root = write(tmp_path / "step_5", {"a.x": b"1", "sub/b.y": b"", "c.z": b"1"})
    assert isinstance(look(root, "*.x", "c.*"), Checkpoint)
    assert "matches *.q" in why(root, "*.x", "*.q")
    assert "sub/b.y is empty" in why(root, "**/*.y")


def test_the_users_globs_stand_for_the_pieces_but_not_for_contradictions(tmp_path):
    files = hf(70)
    del files["scheduler.pt"]
    root = write(tmp_path / "checkpoint-70", files)
    assert "scheduler" in why(root)
    assert isinstance(look(root, "model.safetensors"), Checkpoint)
    write(root, {"trainer_state.json": json.dumps({"global_step": 60}).encode()})
    assert "of step 60" in why(root, "model.safetensors")


def test_a_file_cannot_satisfy_globs_for_a_folder(tmp_path):
    write(tmp_path, {"step_5.pt": torch_zip()})
    assert "asks for files" in why(tmp_path / "step_5.pt", "*.pt")


def test_what_torch_wrote_about_a_file_is_read_without_its_tensors():
    said = read_torch_pickle(str(DATA / "torch_2_14.pt"))
    assert said["step"] == 1
    assert set(said["model"]) == {"weight", "bias"}
