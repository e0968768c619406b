"""The shape of a spec: every key, its type, what is required. What keys mean together is checked elsewhere.

`KEYS` is the whole of it: the validator and the JSON Schema are both made from it.
"""

from __future__ import annotations

import re
import shlex
from typing import Any

from supervisor.core.around import NOTICES
from supervisor.edges.specfile.leaves import (
    ANY_SCALAR,
    DURATION,
    SIZE,
    STRING,
    Bool,
    Count,
    Duration,
    EnvName,
    Filled,
    KindName,
    ParamScalar,
    Pattern,
    Percent,
    Positive,
    ProgressPattern,
    Size,
    StepPattern,
    Text,
    Whole,
    choice,
    mib,
    or_none,
    scalar,
    seconds,
    shaped,
    text,
    whole,
)
from supervisor.edges.specfile.shape import NEVER, Shape, either, leaf, list_of, map_of, mapping, wrong


def _no_string(what: str) -> Shape:
    """A leaf that refuses a string where a list of words is wanted, with the list in the message."""

    def check(value: Any) -> Any:
        said = text(value)
        if any(sign in said for sign in ("&&", "||", ";", "|", ">", "\n")):
            wrong(f"{what} is a list of words, no shell line; for several commands write a script and name it here")
        wrong(f"{what} is a list of words; write [{', '.join(map(_quoted, _words(said)))}]")

    return leaf(check, NEVER)


def _words(said: str) -> list[str]:
    try:
        return shlex.split(said)
    except ValueError:
        return said.split()


def _quoted(word: str) -> str:
    return f'"{word}"' if not word or any(char in word for char in "{}[],:#&*!|>'% ") else word


def _version(value: Any) -> int:
    said = scalar(value)
    if said.tag != "int" or said.value != 1:
        wrong(f"must be 1, not {said.text}: this program reads version 1")
    return 1


def _gpu(value: Any) -> str:
    said = text(value)
    if said.startswith("MIG-"):
        wrong("a MIG instance is not supported; give the whole GPU")
    if not (said.startswith("GPU-") and len(said) > 4) and not (said.isascii() and said.isdigit()):
        wrong(f"a GPU is an index such as 5 or a UUID such as GPU-1f2e..., not {said}")
    return said if said.startswith("GPU-") else str(int(said[:9]))


def _yes_or_id(value: Any) -> str | None:
    said = scalar(value)
    if said.tag == "bool":
        return "auto" if said.value else None
    return _run_id(value)


def _run_id(value: Any) -> str:
    said = text(value)
    if re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", said) is None:
        wrong(f"a run's id at W&B is 1 to 64 letters, digits, _, - and ., not {said}")
    return said


def _ladder_direction(value: Any) -> bool:
    said = text(value)
    if said not in ("up", "down"):
        wrong(f"must be up or down, not {said}")
    return said == "up"


WORD = r"[A-Za-z_][A-Za-z0-9_-]*"
Word = leaf(shaped(WORD, "a word of letters, digits, _ and -"), STRING)
Argv = either(value=_no_string("a command"), items=list_of(Text, at_least=1))
Names = either(value=Filled, items=list_of(Filled))
Gpu = leaf(_gpu, {"type": ["integer", "string"]})
Gpus = either(value=Count, items=list_of(Gpu))
Glob = Filled
RunId = leaf(_run_id, STRING)
YesOrId = leaf(_yes_or_id, {"type": ["boolean", "string"]})
Silent = choice("relaunch", "notify", "halt", "off")
StopAt = leaf(shaped(r"(SIG)?[A-Z]+[0-9+-]*", "a signal's name, such as SIGTERM"), STRING)

Role = either(
    value=Count,
    items=list_of(Gpu),
    keys=mapping(
        {"gpus": Gpus, "silent": Silent, "util_below": Percent, "for": Duration, "may_finish": Bool},
        required=("gpus",),
    ),
)

WRITING: dict[str, Shape] = {
    "flag": leaf(shaped(r"[^\s=]+", "a flag, such as --max-anchors"), STRING),
    "form": choice("space", "equals", "bare"),
    "env": EnvName,
    "aliases": list_of(Filled),
}
Writing = mapping(WRITING)
Protected = either(
    value=ParamScalar,
    items=list_of(ParamScalar),
    keys=mapping({"value": either(value=ParamScalar, items=list_of(ParamScalar)), **WRITING}, required=("value",)),
)
Knob = mapping(
    {
        "value": ParamScalar,
        "ladder": list_of(ParamScalar),
        "rungs": list_of(map_of(ParamScalar)),
        "keep": Filled,
        "direction": leaf(_ladder_direction, {"enum": ["down", "up"]}),
        "venv": Bool,
        "how": map_of(Writing),
        **WRITING,
    },
)
Params = mapping(
    {
        "style": choice("argparse", "hydra", "env", "template"),
        "protected": map_of(Protected),
        "knobs": map_of(Knob),
    },
)

File = mapping({"from": Filled, "set": map_of(leaf(scalar, ANY_SCALAR))}, required=("from",))
Resume = mapping(
    {
        "from": Glob,
        "start": Filled,
        "arg": Filled,
        "args": either(value=_no_string("args"), items=list_of(Text)),
        "complete": list_of(Glob),
        "step": StepPattern,
        "if_none": choice("fresh", "fail"),
        "mode": choice("explicit", "auto"),
        "keep": Count,
    },
    required=("from",),
)
Output = mapping(
    {
        "dir": or_none(text, STRING),
        "stale": choice("keep", "remove_if_empty", "archive"),
        "units": or_none(text, STRING),
    },
)
Preflight = mapping(
    {"gpus_empty": Bool, "disk_free": or_none(mib, SIZE), "checks": list_of(Argv)},
)
Logs = either(
    value=Glob,
    items=list_of(either(value=Glob, keys=mapping({"ranks": Filled}, required=("ranks",)))),
    keys=mapping({"ranks": Filled, "globs": Names}),
)

Progress = mapping(
    {
        "log": ProgressPattern,
        "in": Names,
        "stall": or_none(seconds, DURATION, "auto"),
        "files": Glob,
        "jsonl": mapping({"file": Filled, "step": Filled, "loss": Filled}, required=("file", "step")),
        "heartbeat": Filled,
    },
)
Health = mapping(
    {
        "startup_timeout": Duration,
        "progress": Progress,
        "phases": list_of(
            mapping(
                {"name": Word, "from": Pattern, "to": Pattern, "limit": Duration},
                required=("name", "from", "to", "limit"),
            )
        ),
        "silent_gpu": mapping({"util_below": Percent, "for": Duration}),
        "lost_progress": choice("halt", "notify", "off"),
        "numeric": mapping({"steps": Count}),
    },
)
Done = mapping({"step": Whole, "file": Filled, "log": Pattern})

Rule = mapping(
    {
        "on": either(value=KindName, items=list_of(KindName)),
        "do": choice("relaunch", "halt", "notify"),
        "lower": either(
            value=Filled,
            items=list_of(Filled),
            keys=mapping({"one_of": list_of(Filled)}, required=("one_of",)),
        ),
        "role": Word,
        "phase": Word,
        "match": Pattern,
        "after": Duration,
        "times": Count,
        "from": choice("newest", "older"),
        "wait": Duration,
    },
    required=("on", "do"),
)
VerifyZero = mapping(
    {
        "stable_for": Duration,
        "timeout": Duration,
        "floor": or_none(mib, SIZE, "learned"),
        "foreign": mapping({"wait": Duration, "allow": Size}),
    },
)
Recovery = mapping(
    {
        "max_attempts": Count,
        "per": Duration,
        "stop": mapping({"signal": StopAt, "grace": Duration}),
        "verify_zero": VerifyZero,
        "backoff": mapping({"first": Duration, "cap": Duration}),
        "rules": list_of(Rule),
    },
)
Signature = mapping({"name": Word, "kind": KindName, "match": Pattern}, required=("name", "kind", "match"))
Notify = mapping(
    {
        "urls_from": EnvName,
        "on": list_of(choice(*NOTICES)),
        "command": Argv,
        "heartbeat": mapping({"url_from": EnvName, "every": Duration}, required=("url_from",)),
        "morning": leaf(shaped(r"([01]\d|2[0-3]):[0-5]\d", 'a time of day such as "08:00"'), STRING),
    },
)
Wandb = either(value=YesOrId, keys=mapping({"id": RunId, "resume": choice("allow", "must", "auto")}))
Tracking = mapping(
    {
        "wandb": Wandb,
        "mlflow": leaf(shaped(r"[0-9a-f]{32}", "the id of an MLflow run, 32 hexadecimal digits"), STRING),
        "tensorboard": either(
            value=Filled, keys=mapping({"logdir": Filled, "loss": Filled, "rate": Filled}, required=("logdir",))
        ),
    },
)

KEYS: dict[str, Shape] = {
    "version": leaf(_version, {"const": 1}),
    "name": leaf(
        shaped(r"[a-z0-9-]{1,40}", "1 to 40 of a-z, 0-9 and -"), {"type": "string", "pattern": "^[a-z0-9-]{1,40}$"}
    ),
    "command": Argv,
    "workdir": Filled,
    "venv": Filled,
    "env": map_of(Text, EnvName),
    "env_file": Filled,
    "secrets": list_of(EnvName),
    "topology": map_of(Role, Word),
    "visible": choice("index", "uuid", "none"),
    "launch": mapping({"terminal": choice("tmux", "none"), "pty": Bool}),
    "params": Params,
    "files": map_of(File, Word),
    "code": mapping({"protect": list_of(Filled), "on_change": choice("warn", "halt"), "snapshot": Bool}),
    "data": either(
        value=Filled,
        items=list_of(Filled),
        keys=mapping({"paths": list_of(Filled), "on_change": choice("warn", "fail")}, required=("paths",)),
    ),
    "resume": Resume,
    "output": Output,
    "ports": map_of(or_none(whole(1, 65535), {"type": "integer", "minimum": 1, "maximum": 65535}, "auto"), Word),
    "pins": map_of(Filled, Filled),
    "preflight": Preflight,
    "rehearsal": mapping(
        {
            "params": map_of(ParamScalar),
            "args": list_of(Text),
            "pass": mapping({"steps": Count, "within": Duration}),
        },
    ),
    "hooks": mapping({"before_launch": Argv, "after_stop": Argv, "timeout": Duration}),
    "logs": Logs,
    "health": Health,
    "done": Done,
    "recovery": Recovery,
    "signatures": list_of(Signature),
    "notify": Notify,
    "steps": Count,
    "cost_per_hour": Positive,
    "tracking": Tracking,
}

REQUIRED = ("version", "name", "command")

SPEC = mapping(KEYS, required=REQUIRED)
