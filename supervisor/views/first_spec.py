"""A first spec from a command line: what shapes the training is locked, batch and accumulation are a knob.

Words in, YAML out, which `check` accepts. What cannot be told from a command is left as a comment.
Rule 1: the job gets the same words, each with its value; those that became params stand at the end of the command.
Rule 2: no value of a variable that looks like a secret is written down.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from supervisor.edges.launchers import PYTHONS, Launch, understand
from supervisor.edges.secrets import is_secret_name
from supervisor.views.known_flags import ACCUMULATION, LOCKED, MICRO, OTHER_SIZES, OUTPUT, RESUME, STEPS

COUNTS = ("nproc-per-node", "num-processes", "num-gpus")
RUNGS = 3
_PLAIN = re.compile(r"[A-Za-z0-9_./=@+-]+")
_ENV = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.S)
_HYDRA = re.compile(r"([A-Za-z_][\w.]*)=([^=\[\]{}$,\s]+)")


@dataclass
class _Word:
    """One thing that the script is told: the words as they stand, and as a param its name and value."""

    words: list[str]
    name: str = ""
    value: str = ""
    flag: str = ""
    form: str = "space"

    @property
    def plain(self) -> str:
        """The name as the lists above have it."""
        return self.name.rpartition(".")[2].replace("-", "_").lower()


@dataclass
class _Draft:
    env: dict[str, str] = field(default_factory=dict)
    secrets: list[str] = field(default_factory=list)
    gpus: list[str] | int | None = None
    venv: str = ""
    head: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    params: dict[str, _Word] = field(default_factory=dict)
    hydra: bool = False
    resume: _Word | None = None
    output: str = ""
    notes: list[str] = field(default_factory=list)


def first_spec(command: Sequence[str], name: str, file: str) -> str:
    """The spec's text. `command` has a word at least."""
    draft = _Draft()
    words = _environment(list(command), draft)
    launch = understand(words)
    _head(launch, draft)
    _script(_taken_apart(launch.rest, draft), draft)
    return _written(draft, launch, name, file)


# ── read ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _environment(words: list[str], draft: _Draft) -> list[str]:
    """`env` and NAME=value before the command, as a shell takes them."""
    if words[0] == "env" and len(words) > 1:
        words = words[1:]
    while len(words) > 1 and (found := _ENV.fullmatch(words[0])):
        name, value = found[1], found[2]
        words = words[1:]
        if name == "CUDA_VISIBLE_DEVICES" and re.fullmatch(r"\d+(,\d+)*", value):
            draft.gpus = list(dict.fromkeys(value.split(",")))
        elif is_secret_name(name):
            draft.secrets.append(name)
            draft.notes.append(
                f"{name} is a secret: set it where you type `supervise up`; its value is not written here"
            )
        elif value and "${{" not in value and name not in ("CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES"):
            draft.env[name] = value
    return words


def _head(launch: Launch, draft: _Draft) -> None:
    """The launcher's own words; its count of processes is that of the topology, its restarts are off."""
    head = list(launch.head)
    venv, slash, program = head[0].rpartition("/bin/")
    if slash and program in (*PYTHONS, "torchrun", "accelerate", "deepspeed"):
        draft.venv, head[0] = venv or "/", program
    if launch.gpus is not None:
        draft.gpus = draft.gpus or launch.gpus
    for n in range(1, len(head)):
        flag, equals, value = head[n].lstrip("-").partition("=")
        known = flag.replace("_", "-") if head[n].startswith("-") else ""
        at, before = (n, head[n][: -len(value)]) if equals else (n + 1, "")
        if at >= len(head):
            continue
        if known in COUNTS and launch.gpus is not None and draft.gpus:
            head[at] = f"{before}${{{{ topology.trainer.count }}}}"
        elif known == "max-restarts" and launch.own_restarts:
            head[at] = f"{before}0"
            draft.notes.append(f"{launch.kind} restarted workers by itself; supervise does, from verified-empty GPUs")
    draft.head = head


def _taken_apart(rest: Sequence[str], draft: _Draft) -> list[_Word]:
    """The script's words, each with its value where it clearly has one."""
    found: list[_Word] = []
    n = 0
    while n < len(rest):
        word = rest[n]
        if word.startswith("--") and "=" in word:
            flag, _, value = word.partition("=")
            found.append(_Word([word], flag[2:], value, flag, "equals"))
        elif word.startswith("--") and n + 1 < len(rest) and _is_value(rest[n + 1]) and _ends_here(rest, n + 2):
            found.append(_Word([word, rest[n + 1]], word[2:], rest[n + 1], word))
            n += 1
        elif hydra := _HYDRA.fullmatch(word):
            draft.hydra = True
            found.append(_Word([word], hydra[1], hydra[2]))
        else:
            found.append(_Word([word]))
        n += 1
    draft.hydra = draft.hydra and not any(one.flag for one in found)
    return found


def _is_value(word: str) -> bool:
    return not word.startswith("-") or re.fullmatch(r"-[\d.].*", word) is not None


def _ends_here(rest: Sequence[str], n: int) -> bool:
    """Whether no further value of the same flag follows."""
    return n >= len(rest) or rest[n].startswith("--") or _HYDRA.fullmatch(rest[n]) is not None


def _script(words: list[_Word], draft: _Draft) -> None:
    """What becomes a param leaves the command; what does not stays where it stood."""
    said = [*draft.head, *(word for one in words for word in one.words)]
    pair = [one for one in _pair(words) if _stands_once(one, said, draft)]
    pair = pair if len(pair) == 2 else []
    for one in words:
        is_param = bool(one.flag) != draft.hydra and _stands_once(one, said, draft) and _can_be_param(one)
        if (is_param and one.plain in LOCKED) or (is_param and one in pair):
            draft.params[one.name] = one
        elif is_param and one.plain in RESUME and not draft.hydra and re.search(r"\d", one.value.rpartition("/")[2]):
            draft.resume = one
        else:
            draft.kept += one.words
            if one.plain in OUTPUT and re.fullmatch(r"[\w.][\w./-]*", one.value) and ".." not in one.value:
                draft.output = one.value
            if one.plain in MICRO | OTHER_SIZES and one not in pair and one.value:
                draft.notes.append(
                    f"{one.name} could be a knob; no flag here accumulates, so a smaller one trains another batch"
                )


def _stands_once(one: _Word, said: Sequence[str], draft: _Draft) -> bool:
    """Whether nothing else could be this param: no other flag, no beginning of it, no variable."""
    name = one.name.replace("-", "_").replace(".", "_").lower()
    if name.upper() in draft.env:
        return False
    heads = [word.lstrip("-+~").partition("=")[0].replace("-", "_").replace(".", "_").lower() for word in said]
    return sum(1 for head in heads if head == name or (len(head) > 2 and name.startswith(head))) == 1


def _can_be_param(one: _Word) -> bool:
    """A name that the spec takes and a value that comes back as it was."""
    return bool(
        re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", one.name)
        and one.value
        and one.value.isprintable()
        and "${{" not in one.value
        and one.value.strip() == one.value
    )


def _pair(words: list[_Word]) -> list[_Word]:
    """The micro-batch and the accumulation, where both are there and the first can be halved."""
    micro = [one for one in words if one.plain in MICRO]
    accumulation = [one for one in words if one.plain in ACCUMULATION]
    if len(micro) != 1 or len(accumulation) != 1 or not all(_identifier(one) for one in (micro[0], accumulation[0])):
        return []
    first, second = micro[0].value, accumulation[0].value
    whole = first.isascii() and first.isdigit() and second.isascii() and second.isdigit()
    return [micro[0], accumulation[0]] if whole and int(first) % 2 == 0 and int(first) and int(second) else []


def _identifier(one: _Word) -> bool:
    """A name that `keep` can name: no dash and no dot."""
    return re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", one.name) is not None


# ── write ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _written(draft: _Draft, launch: Launch, name: str, file: str) -> str:
    lines = [
        f"# Written by `supervise init` from a command line. Read it, then: supervise check {file}",
        "version: 1",
        f"name: {name}",
        *(f"# {note}" for note in draft.notes),
        "",
        f"command: [{', '.join(map(quoted, [*draft.head, *draft.kept]))}]",
        f"venv: {quoted(draft.venv)}" if draft.venv else "# venv: .venv                     # the job's environment",
    ]
    if draft.env:
        lines.append(f"env: {{{', '.join(f'{key}: {quoted(value)}' for key, value in draft.env.items())}}}")
    if draft.secrets:
        lines.append(f"secrets: [{', '.join(draft.secrets)}]")
    if draft.gpus:
        shown = draft.gpus if isinstance(draft.gpus, int) else f"[{', '.join(draft.gpus)}]"
        lines += [
            "",
            f"topology: {{trainer: {shown}}}            # the GPUs; they are verified empty before each launch",
        ]
    else:
        lines += ["", "# topology: {trainer: 8}           # the GPUs; without it the run has none"]
    lines += ["", *_params(draft), "", *_checkpoints(draft), "", *_health(draft)]
    return "\n".join(lines) + "\n"


def _params(draft: _Draft) -> list[str]:
    if not draft.params:
        return [
            "# params:",
            "#   protected: {learning_rate: 1e-4}            # locked for the life of the run",
            "#   knobs:                                      # the only things recovery may change",
            "#     batch: {rungs: [{micro_batch: 8, grad_accum: 4}, {micro_batch: 4, grad_accum: 8}], "
            "keep: micro_batch * grad_accum}",
        ]
    lines = ["params:", *(["  style: hydra"] if draft.hydra else [])]
    locked = [one for one in draft.params.values() if one.plain in LOCKED]
    if locked:
        lines.append("  protected:                                  # locked: no recovery ever changes these")
        lines += [f"    {one.name}: {_value(one)}" for one in locked]
    moved = [one for one in draft.params.values() if one.plain not in LOCKED]
    if moved:
        lines += _knob(*moved)
    return lines


def _value(one: _Word) -> str:
    how = _how(one)
    return f"{{value: {quoted(one.value)}, {how}}}" if how else quoted(one.value)


def _how(one: _Word) -> str:
    """How the flag is written, where it is not the way that its name is written by default."""
    parts = []
    if one.flag and one.flag != "--" + one.name.replace("_", "-"):
        parts.append(f"flag: {quoted(one.flag)}")
    if one.form == "equals":
        parts.append("form: equals")
    return ", ".join(parts)


def _knob(first: _Word, second: _Word) -> list[str]:
    micro, accumulation = (first, second) if first.plain in MICRO else (second, first)
    a, b = micro.name.replace("-", "_"), accumulation.name.replace("-", "_")
    rungs: list[str] = []
    size, times = int(micro.value), int(accumulation.value)
    while len(rungs) < RUNGS and size:
        rungs.append(f"{{{a}: {size}, {b}: {times}}}")
        if size % 2:
            break
        size, times = size // 2, times * 2
    how = [f"{name}: {{{_how(one)}}}" for name, one in ((a, micro), (b, accumulation)) if _how(one)]
    return [
        "  knobs:                                      # the only things recovery may change, downwards",
        "    batch:",
        f"      rungs: [{', '.join(rungs)}]",
        f"      keep: {a} * {b}        # the effective batch stays",
        *([f"      how: {{{', '.join(how)}}}"] if how else []),
    ]


def _checkpoints(draft: _Draft) -> list[str]:
    lines = []
    if draft.resume is not None:
        folder, slash, last = draft.resume.value.rpartition("/")
        glob = f"{folder}{slash}{re.sub(r'[0-9]+', '*', last, count=1)}"
        arg = draft.resume.flag + ("=" if draft.resume.form == "equals" else "")
        lines.append(f"resume: {{from: {quoted(glob)}, start: {quoted(draft.resume.value)}, arg: {quoted(arg)}}}")
    else:
        lines.append(
            '# resume: {from: "checkpoints/step_*", arg: --resume}  # where checkpoints are, how the job is told'
        )
    if draft.output:
        lines.append(f"output: {{dir: {quoted(draft.output)}}}")
    return lines


def _health(draft: _Draft) -> list[str]:
    steps = [
        one.value for one in draft.params.values() if one.plain in STEPS and re.fullmatch(r"[1-9]\d{0,14}", one.value)
    ]
    return [
        *(f"steps: {value}              # for the time that is left" for value in steps[:1]),
        "# health:",
        "#   progress: {log: 'step (?P<step>\\d+)'}     # how a step looks in your log",
        "# notify: {on: [recovered, degraded, halted, finished]}",
    ]


def quoted(text: str) -> str:
    """A scalar of a flow list, as it stands or in quotes."""
    if _PLAIN.fullmatch(text) and text[0] not in "=@" and text.lower() not in ("null", "~", "true", "false"):
        return text
    if text.isprintable() and text.isascii() and "'" not in text:
        return f"'{text}'"
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(char: str) -> str:
    """As YAML's double quotes want it (5.7): text of any script stands as it is, what cannot be seen by its number."""
    if char in '"\\':
        return f"\\{char}"
    return char if char.isprintable() and ord(char) < 0xD800 else f"\\U{ord(char):08x}"
