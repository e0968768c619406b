"""What a killed job leaves in shared memory and build folders is gone before the next launch; a stranger's is not."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from boxes import Box, until

pytestmark = pytest.mark.real

SHM = Path("/dev/shm")
JOB = """\
import os, mmap, signal, sys, time
from pathlib import Path
shm, cache, second = Path("/dev/shm"), Path(os.environ["TORCH_EXTENSIONS_DIR"]), Path(sys.argv[0] + ".ran").exists()
names = sys.argv[1:]
print("left", *[name for name in names if (shm / name).exists()], flush=True)
print("lock", (cache / "fused" / "lock").exists(), flush=True)
if second:
    print("step 2", flush=True)
    signal.pause()
Path(sys.argv[0] + ".ran").touch()
(shm / f"torch_{os.getpid()}_1_0").write_bytes(b"x" * 4096)
kept = [os.open(shm / name, os.O_RDWR | os.O_CREAT, 0o600) for name in names]
(cache / "fused").mkdir(parents=True)
kept.append(os.open(cache / "fused" / "lock", os.O_CREAT | os.O_EXCL))
print("torch", os.getpid(), flush=True)
print("step 1", flush=True)
signal.pause()
"""
SPEC = """\
version: 1
name: left
command: [{python}, {script}, {psm}]
env: {{TORCH_EXTENSIONS_DIR: {cache}}}
health: {{progress: {{log: 'step (?P<step>\\d+)'}}}}
recovery: {{stop: {{grace: 1s}}, verify_zero: {{stable_for: 100ms}}}}
"""


@pytest.fixture
def names(tmp_path):
    """Segments that tests make; whatever is left of them is taken away."""
    made = [f"psm_{os.getpid():x}{n}" for n in range(2)]
    yield made
    for name in made:
        (SHM / name).unlink(missing_ok=True)


def test_leftovers_of_a_killed_job_are_gone_before_the_next_launch_and_a_strangers_are_not(box: Box, names):
    ours, strangers = names
    script = box.write("job.py", JOB)
    cache = box.root / "extensions"
    text = SPEC.format(python=sys.executable, script=script, psm=ours, cache=cache)
    night = box.up(box.write("left.yaml", text))
    until(lambda: "torch" in night.output(), "the job has made its files")
    (SHM / strangers).touch(mode=0o600)  # of the same kind, at the same time, in use by nobody
    leader = night.leader()
    torch = SHM / f"torch_{leader}_1_0"
    assert torch.exists()
    held = night.dir.attempt(1).path / "held-files.json"
    until(lambda: held.exists() and held.read_text().count(str(leader)) >= 2, "the job was seen with its files")
    os.kill(leader, 9)
    night.until("LaunchIntended", attempt=2)
    until(lambda: "step 2" in night.output(2), "the second attempt runs")

    (intended,) = night.records("LeftoversIntended")
    named = {Path(one["path"]): one for one in intended["data"]["leftovers"]}
    assert set(named) == {torch, SHM / ours, cache / "fused" / "lock"}
    assert named[torch]["proof"] == f"made by pid {leader} of the run"
    assert named[SHM / ours]["proof"] == f"pid {leader} of the run was seen with it"
    (removed,) = night.records("LeftoversRemoved")
    assert intended["n"] < removed["n"] < night.has("LaunchIntended", attempt=2)[0]["n"]
    assert removed["data"]["kept"] == []
    assert not torch.exists()
    assert "left \n" in night.output(2).replace("left\n", "left \n")
    assert "lock False" in night.output(2)
    assert (SHM / strangers).exists()
    assert any(strangers in one["data"]["text"] for one in night.records("Warned"))
    night.down()


def test_a_port_that_is_busy_at_a_relaunch_is_told_with_its_holder(box: Box, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    spec = box.spec(
        "ports",
        "echo step 1; exec sleep 600",
        f"ports: {{rdzv: {port}}}\nhealth: {{progress: {{log: 'step (?P<step>\\d+)'}}}}\n",
    )
    night = box.up(spec)
    night.until("FirstProgress", attempt=1)
    code = (
        "import socket, signal, sys; s = socket.socket(); s.bind(('127.0.0.1', int(sys.argv[1]))); s.listen()\n"
        "print('up', flush=True); signal.pause()"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(port)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == b"up\n"
        os.kill(night.leader(), 9)
        until(lambda: night.records("EpisodeEnded"), "the run halts", within_s=110)
        (ended,) = night.records("EpisodeEnded")
        assert ended["data"]["ending"] == "halted"
        assert f"port {port} (rdzv) is in use by pid {holder.pid}" in ended["data"]["because"]
        assert holder.poll() is None
        assert len(night.records("LaunchIntended")) == 1
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()


def test_a_port_that_is_chosen_is_a_free_one_for_each_attempt(box: Box):
    spec = box.write(
        "auto.yaml",
        "version: 1\nname: auto\nports: {rdzv: auto}\n"
        f"command: [{sys.executable}, -c, \"import signal; print('step 1', flush=True); signal.pause()\", "
        "'${{ ports.rdzv }}']\n"
        "health: {progress: {log: 'step (?P<step>\\d+)'}}\n",
    )
    night = box.up(spec)
    night.until("FirstProgress", attempt=1)
    first = night.has("LaunchIntended", attempt=1)[0]["data"]["ports"]["rdzv"]
    with socket.socket() as held:  # nobody's business: the next attempt takes another
        held.bind(("", first))
        held.listen()
        os.kill(night.leader(), 9)
        second = night.until("LaunchIntended", attempt=2)["data"]
    assert second["ports"]["rdzv"] != first
    assert second["argv"][-1] == str(second["ports"]["rdzv"])
    night.down()
