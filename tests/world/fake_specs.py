"""Run specs for simulated worlds: the incident's, resolved, with what a test wants changed."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from supervisor.core.evidence import Gpu
from supervisor.core.kinds import Kind
from supervisor.core.spec import (
    Do,
    Foreign,
    Health,
    Knob,
    Output,
    Param,
    Params,
    Progress,
    Recovery,
    Resume,
    Role,
    Rule,
    RunSpec,
    Scalar,
    Stale,
    VerifyZero,
)

RUN = "dflash"
TOTAL_MIB = 97_253.0  # 94.97 GiB
CHECKPOINTS = "/w/checkpoints"


def uuid(index: int) -> str:
    return f"GPU-{index}"


@lru_cache(maxsize=8)  # values, asked for in each look of thousands of nights
def inventory(count: int = 8) -> tuple[Gpu, ...]:
    return tuple(Gpu(index=n, uuid=uuid(n), name="toy", total_mib=TOTAL_MIB) for n in range(count))


def knob(name: str, *texts: str) -> Knob:
    return Knob(name=name, rungs=tuple({name: Scalar(text, "int")} for text in texts))


BOTH = Rule(on=(Kind.GPU_OOM,), do=Do.RELAUNCH, lower=("token_budget", "max_batch_size"), where="dflash.yaml:44")


def incident(**changes: Any) -> RunSpec:
    """The incident's spec; `changes` are fields of RunSpec."""
    params = Params(
        protected={"anchors": Scalar("1024", "int"), "block_size": Scalar("32", "int")},
        knobs=(knob("token_budget", "49152", "45056", "40960"), knob("max_batch_size", "64", "48", "32")),
        how={name: Param(name=name) for name in ("anchors", "block_size", "token_budget", "max_batch_size")},
    )
    spec = RunSpec(
        name=RUN,
        command=("scripts/start_training.sh", "--drafter-gpus=${{ topology.drafter.gpus }}"),
        file="dflash.yaml",
        workdir="/w",
        env={"CUDA_MODULE_LOADING": "LAZY"},
        topology=(Role(name="target", gpus=("0", "1", "2", "3", "4")), Role(name="drafter", gpus=("5", "6", "7"))),
        params=params,
        resume=Resume(
            from_=f"{CHECKPOINTS}/step_*",
            start=f"{CHECKPOINTS}/step_690",
            args=("--resume", "${{ checkpoint.path }}"),
            if_none="fail",
        ),
        output=Output(dir="/w/out/dflash", stale=Stale.REMOVE_IF_EMPTY),
        health=Health(startup_timeout_s=2400.0, progress=Progress(log="step (?P<step>[0-9]+)")),
        recovery=Recovery(rules=(BOTH,)),
    )
    return replace(spec, **changes)


def small(**changes: Any) -> RunSpec:
    """Two GPUs, short waits: for nights that are lived through many times."""
    zero = VerifyZero(stable_for_s=0.5, timeout_s=20.0, foreign=Foreign())
    spec = incident(
        topology=(Role(name="drafter", gpus=("0", "1")),),
        recovery=Recovery(rules=(BOTH,), grace_s=3.0, backoff_first_s=2.0, verify_zero=zero),
    )
    return replace(spec, **changes)
