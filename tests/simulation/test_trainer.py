"""The stand-in trainer as a supervisor meets it: real processes behind scripts/start_training.sh."""

from __future__ import annotations

import json
import os
import re
import signal
import struct
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from supervisor.simulation import saves
from supervisor.simulation.flags import stand_in_environment
from supervisor.simulation.world import World

REPO = Path(__file__).parents[2]
START = REPO / "scripts" / "start_training.sh"
PROGRESS = re.compile(r"step (?P<step>\d+).* (?P<rate>[\d.]+) Ktok/s")
ROLES = ["--target-gpus=0,1,2,3,4", "--drafter-gpus=5,6,7", "--anchors", "1024", "--block-size", "32"]
FIRST_RUNG = [*ROLES, "--token-budget", "49152", "--max-batch-size", "64"]
SECOND_RUNG = [*ROLES, "--token-budget", "45056", "--max-batch-size", "48"]

pytestmark = pytest.mark.real


class Box:
    """A simulated box, a workdir with the checkpoint of step 690, and the jobs started in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.world = World.create(directory / "world", drain_s=0.2)
        self.log = directory / "output.log"
        self.jobs: list[subprocess.Popen[bytes]] = []
        saves.save(directory / "checkpoints" / "step_690", 690)

    def start(self, flags: list[str], **environ: str) -> subprocess.Popen[bytes]:
        """A job in a session of its own, its output appended to `log`."""
        resume = ["--resume", str(self.directory / "checkpoints" / "step_690")]
        env = {key: value for key, value in os.environ.items() if not key.startswith(("SUPERVISE_", "CUDA_"))}
        env |= stand_in_environment(self.world.directory)
        env |= {"SUPERVISE_SIM_SPEED": "20", "SUPERVISE_SIM_ORPHAN_S": "60"} | environ
        with self.log.open("ab") as output:
            job = subprocess.Popen(
                [START, *flags, *resume],
                cwd=self.directory,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.jobs.append(job)
        return job

    def workers(self) -> list[int]:
        """Live processes that hold memory, by rank."""
        return [pid for gpu in range(8) for pid in self.world.pids(gpu) if Path(f"/proc/{pid}").exists()]

    def drained(self) -> bool:
        """True when no GPU holds anything any more."""
        return not any(self.world.used_mib(gpu) for gpu in range(8))

    def wait_for(self, text: str, times: int = 1) -> str:
        """The output once it holds `text`."""
        return wait_until(lambda: self.log.read_text() if self.log.read_text().count(text) >= times else None)

    def clear(self) -> None:
        """Ends everything that was started here, by pid."""
        for job in self.jobs:
            job.kill()
            job.wait()
        deadline = time.monotonic() + 20
        while self.workers() and time.monotonic() < deadline:
            for pid in self.workers():
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)


def wait_until(look):
    """What `look` answers once that is something."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if answer := look():
            return answer
        time.sleep(0.02)
    raise AssertionError("it never came")


@pytest.fixture
def box(tmp_path: Path):
    box = Box(tmp_path)
    yield box
    box.clear()


def test_at_the_first_rung_gpus_5_and_7_run_out_of_memory_and_the_launcher_fails(box: Box) -> None:
    assert box.start(FIRST_RUNG).wait(timeout=60) == 1
    output = box.log.read_text()
    assert "loading shard 8 of 8" in output
    errors = [line for line in output.splitlines() if "torch.OutOfMemoryError" in line]
    assert [line[:8] for line in errors] == ["[rank5]:", "[rank7]:"]
    assert "Tried to allocate 4.74 GiB. GPU 5 has a total capacity of 94.97 GiB of which 4.57 GiB is free." in errors[0]
    assert "90.29 GiB is allocated by PyTorch" in errors[0]
    assert [int(found["step"]) for found in PROGRESS.finditer(output)] == [691, 692, 693]
    assert re.search(r"failed \(exitcode: 1\) local_rank: 5 \(pid: \d+\) of binary", output)


def test_the_target_workers_become_orphans_deaf_to_hup_that_keep_their_memory(box: Box) -> None:
    job = box.start(FIRST_RUNG)
    job.wait(timeout=60)
    orphans = box.workers()
    assert len(orphans) == 5
    wait_until(lambda: all(box.world.util_pct(gpu) == 0 for gpu in range(5)))
    for pid in orphans:
        assert os.getsid(pid) == pid != job.pid
        os.kill(pid, signal.SIGHUP)
        assert "--token-budget\x0049152" in Path(f"/proc/{pid}/cmdline").read_text()
    assert box.workers() == orphans
    assert all(box.world.used_mib(gpu) > 70 * 1024 for gpu in range(5))
    assert wait_until(lambda: not any(box.world.used_mib(gpu) for gpu in (5, 6, 7)))


def test_a_launch_over_orphans_runs_out_of_memory_while_it_loads(box: Box) -> None:
    box.start(FIRST_RUNG).wait(timeout=60)
    assert box.start(SECOND_RUNG).wait(timeout=60) == 1
    assert re.search(r"Process \d+ has 70\.20 GiB memory in use", box.log.read_text()) or re.search(
        r"GPU [0-4] has a total capacity.*Process \d+ has \d\d\.\d\d GiB memory in use", box.log.read_text()
    )


def test_at_the_second_rung_it_trains_from_the_checkpoint_and_finishes_with_every_gpu_empty(box: Box) -> None:
    assert box.start(SECOND_RUNG).wait(timeout=60) == 0
    output = box.log.read_text()
    assert "out of memory" not in output
    assert [int(found["step"]) for found in PROGRESS.finditer(output)] == list(range(691, 721))
    saved = sorted(path.name for path in (box.directory / "checkpoints").iterdir())
    assert saved == [f"step_{step}" for step in range(690, 721, 5)]
    assert not box.workers()
    assert json.loads((box.world.directory / "starts.jsonl").read_text())["argv"][0] == "--target-gpus=0,1,2,3,4"


def test_a_job_that_survives_trains_on_with_gpu_6_after_5_and_7_died(box: Box) -> None:
    job = box.start(FIRST_RUNG, SUPERVISE_SIM_SCENARIO="survive")
    output = box.wait_for("step 697")
    assert output.count("torch.OutOfMemoryError") == 2
    assert job.poll() is None
    wait_until(lambda: [bool(box.world.pids(gpu)) for gpu in (5, 6, 7)] == [False, True, False])
    assert box.world.util_pct(6) > 90


def test_a_hanging_job_keeps_its_gpus_busy_and_says_nothing_more(box: Box) -> None:
    job = box.start(SECOND_RUNG, SUPERVISE_SIM_SCENARIO="hang")
    wait_until(lambda: all(box.world.util_pct(gpu) == 100 for gpu in range(8)))
    assert job.poll() is None
    assert box.log.read_text().splitlines()[-1].startswith("step 693/")


def test_a_silent_drafter_keeps_its_memory_while_the_others_train_on(box: Box) -> None:
    box.start(SECOND_RUNG, SUPERVISE_SIM_SCENARIO="silent", SUPERVISE_SIM_SPEED="5")
    box.wait_for("step 696")
    assert (round(box.world.used_mib(6) / 1024, 1), box.world.util_pct(6)) == (30.5, 0)
    assert box.world.util_pct(5) == 94


def test_an_exit_without_a_word_is_just_that(box: Box) -> None:
    assert box.start(SECOND_RUNG, SUPERVISE_SIM_SCENARIO="exit1").wait(timeout=60) == 1
    assert box.log.read_text().splitlines()[-1] == "giving up"
    assert not box.workers()


def test_no_rung_helps_where_memory_is_always_short(box: Box) -> None:
    assert box.start(SECOND_RUNG, SUPERVISE_SIM_SCENARIO="always_oom").wait(timeout=60) == 1
    assert box.log.read_text().count("torch.OutOfMemoryError") == 2


def test_a_scenario_can_be_kept_to_the_first_launch(box: Box) -> None:
    once = {"SUPERVISE_SIM_SCENARIO": "exit1", "SUPERVISE_SIM_TIMES": "1"}
    assert box.start(SECOND_RUNG, **once).wait(timeout=60) == 1
    wait_until(box.drained)
    assert box.start(SECOND_RUNG, **once).wait(timeout=60) == 0


def test_sigterm_to_the_launcher_ends_its_workers_too(box: Box) -> None:
    job = box.start(SECOND_RUNG, SUPERVISE_SIM_SCENARIO="slow")
    box.wait_for("step 692")
    os.killpg(job.pid, signal.SIGTERM)
    assert job.wait(timeout=60) == 1
    assert not box.workers()


def test_a_killed_launcher_leaves_every_worker(box: Box) -> None:
    job = box.start(SECOND_RUNG, SUPERVISE_SIM_SCENARIO="slow")
    box.wait_for("step 692")
    job.kill()
    job.wait()
    assert len(box.workers()) == 8


def test_a_killed_worker_fails_the_job(box: Box) -> None:
    job = box.start(SECOND_RUNG, SUPERVISE_SIM_SCENARIO="slow")
    box.wait_for("step 692")
    os.kill(box.world.pids(2)[0], signal.SIGKILL)
    assert job.wait(timeout=60) == 1
    assert "failed (exitcode: -9) local_rank: 2" in box.log.read_text()


def test_ordinals_are_those_of_the_visible_gpus(box: Box) -> None:
    job = box.start(["--gpus=0,1"], CUDA_VISIBLE_DEVICES="3," + box.world.gpus()[6].uuid, SUPERVISE_SIM_SCENARIO="slow")
    box.wait_for("step 691")
    assert [gpu for gpu in range(8) if box.world.pids(gpu)] == [3, 6]
    assert job.poll() is None


def test_an_extraction_with_too_large_a_batch_leaves_an_empty_output_directory(box: Box) -> None:
    flags = ["--batch-size", "2000", "--output-dir", "out/hidden", "--verifier", "some/model"]
    assert box.start(flags).wait(timeout=60) == 1
    assert list((box.directory / "out" / "hidden").iterdir()) == []


def test_an_extraction_that_fits_writes_shards(box: Box) -> None:
    assert box.start(["batch_size=4", "output_dir=out/hidden"]).wait(timeout=60) == 0
    assert len(list((box.directory / "out" / "hidden").glob("shard_*.safetensors"))) == 6


def test_a_checkpoint_is_valid_and_knows_its_step(tmp_path: Path) -> None:
    saves.save(tmp_path / "step_7", 8)
    data = (tmp_path / "step_7" / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    assert header["drafter.weight"]["data_offsets"] == [0, len(data) - 8 - length]
    with zipfile.ZipFile(tmp_path / "step_7" / "optim.pt") as archive:
        assert archive.testzip() is None
        assert "archive/data.pkl" in archive.namelist()
    assert saves.step_of(tmp_path / "step_7") == 8
    assert [path.name for path in tmp_path.iterdir()] == ["step_7"]


def test_the_start_script_names_what_is_missing(tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"]}
    unset = subprocess.run([START], env=environ, capture_output=True, text=True, timeout=30)
    assert (unset.returncode, "TRAIN_SCRIPT is not set" in unset.stderr) == (78, True)
    gone = subprocess.run(
        [START], env=environ | {"TRAIN_SCRIPT": "nowhere.py"}, cwd=tmp_path, capture_output=True, text=True, timeout=30
    )
    assert gone.returncode == 78
    assert f"no trainer at TRAIN_SCRIPT=nowhere.py (looked from {tmp_path})" in gone.stderr


def test_the_start_script_becomes_the_trainer(tmp_path: Path) -> None:
    trainer = tmp_path / "trainer"
    trainer.write_text(f"#!{sys.executable}\nimport os, sys\nprint(os.getpid(), *sys.argv[1:])\nsys.exit(7)\n")
    environ = {"PATH": os.environ["PATH"], "TRAIN_SCRIPT": "trainer"}
    refused = subprocess.run([START], env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=30)
    assert (refused.returncode, "chmod +x" in refused.stderr) == (78, True)
    trainer.chmod(0o755)
    job = subprocess.Popen([START, "--a=b c"], env=environ, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    output, _ = job.communicate(timeout=30)
    assert (job.returncode, output) == (7, f"{job.pid} --a=b c\n")
