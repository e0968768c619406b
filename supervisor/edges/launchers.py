"""Command lines of training jobs: which launcher starts which script with which flags. Words in, words out.

The launchers' flags are those of their own help: torchrun (torch.distributed.run), `accelerate launch`, deepspeed.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

TORCHRUN_ALONE = frozenset({"standalone", "no-python", "run-path", "m", "module", "no_python", "run_path"})
ACCELERATE_ALONE = frozenset(
    {
        "multi_gpu",
        "cpu",
        "tpu",
        "use_deepspeed",
        "use_fsdp",
        "use_megatron_lm",
        "use_xpu",
        "quiet",
        "debug",
        "m",
        "module",
        "no_python",
        "same_network",
        "dynamo_use_fullgraph",
        "dynamo_use_dynamic",
    }
)
DEEPSPEED_ALONE = frozenset(
    {
        "no_python",
        "no_local_rank",
        "no_ssh",
        "no_ssh_check",
        "force_multi",
        "save_pid",
        "enable_each_rank_log",
        "elastic_training",
        "module",
        "bind_cores_to_rank",
    }
)
MODULES = {
    "torch.distributed.run": ("torchrun", TORCHRUN_ALONE),
    "torch.distributed.launch": ("torchrun", TORCHRUN_ALONE),
    "accelerate.commands.launch": ("accelerate", ACCELERATE_ALONE),
    "deepspeed.launcher.runner": ("deepspeed", DEEPSPEED_ALONE),
}
PYTHONS = ("python", "python3", "python2")


class Launch(Struct, frozen=True):
    """A command taken apart. `head` is everything up to and with the script; `flags` and `rest` are the script's.

    `kind` is `python torchrun accelerate deepspeed` or empty for a program of its own. `gpus` is what the launcher is
    told of processes on this box; `own` are the launcher's flags by name without dashes, `-` and `_` alike.
    """

    kind: str
    head: tuple[str, ...]
    script: str
    rest: tuple[str, ...]
    own: dict[str, str] = field(default_factory=dict)

    @property
    def gpus(self) -> int | None:
        """How many processes, one for each GPU, the launcher starts here; None where it does not say."""
        for name in ("nproc-per-node", "num-processes", "num-gpus"):
            value = self.own.get(name, "")
            if value.isdigit() and int(value) > 0:
                return int(value)
        return None

    @property
    def own_restarts(self) -> int:
        """How often the launcher restarts its workers by itself."""
        value = self.own.get("max-restarts", "0")
        return int(value) if value.isdigit() else 0


def understand(words: Sequence[str]) -> Launch:
    """The command taken apart; one that starts no launcher known here is a program with flags."""
    argv = list(words)
    at = 0
    name = _base(argv[0])
    if name.startswith(PYTHONS) or name in PYTHONS:
        at = 1
        while at < len(argv) and argv[at].startswith("-") and argv[at] not in ("-m", "-c"):
            at += 1  # -u, -O, -W...
        if argv[at : at + 1] == ["-m"]:
            module = argv[at + 1] if at + 1 < len(argv) else ""
            if module in MODULES:
                return _launcher(*MODULES[module], argv, at + 2)
            at += 1
        end = min(at + 1, len(argv))
        return Launch("python", tuple(argv[:end]), argv[end - 1], tuple(argv[end:]))
    if name == "torchrun":
        return _launcher("torchrun", TORCHRUN_ALONE, argv, 1)
    if name == "accelerate" and argv[1:2] == ["launch"]:
        return _launcher("accelerate", ACCELERATE_ALONE, argv, 2)
    if name == "deepspeed":
        return _launcher("deepspeed", DEEPSPEED_ALONE, argv, 1)
    return Launch("", (argv[0],), argv[0], tuple(argv[1:]))


def _base(word: str) -> str:
    return word.rpartition("/")[2]


def _launcher(kind: str, alone: frozenset[str], argv: list[str], at: int) -> Launch:
    """The launcher's own flags, until the script: each has a value unless it is one of `alone`."""
    own: dict[str, str] = {}
    is_module = False
    while at < len(argv) and argv[at].startswith("-"):
        flag, equals, value = argv[at].lstrip("-").partition("=")
        if argv[at] == "--":
            at += 1
            break
        if flag in ("m", "module"):
            is_module = True
        if equals:
            own[_name(flag)] = value
        elif flag in alone or flag.replace("-", "_") in alone:
            own[_name(flag)] = "true"
        else:
            own[_name(flag)] = argv[at + 1] if at + 1 < len(argv) else ""
            at += 1
        at += 1
    end = min(at + 1, len(argv))
    script = argv[end - 1] if at < len(argv) else ""
    return Launch(kind, tuple(argv[:end]), f"-m {script}" if is_module else script, tuple(argv[end:]), own)


def _name(flag: str) -> str:
    return flag.replace("_", "-")
