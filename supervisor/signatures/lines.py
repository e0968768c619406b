"""One line taken apart: escape codes, who printed it, whether it only mentions a failure. No patterns of failures."""

from __future__ import annotations

import re

# CSI, OSC and two-byte escapes; none of them may swallow a line break.
_ESCAPES = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\r\n]*(?:\x07|\x1b\\)?|[@-Z\\^_]|[()][A-B0-2])")

#: Text kept of a line: enough for the longest message of an allocator with ten holders.
TEXT_CAP = 2000

# Who printed the line. The group is a rank; the whole prefix tells processes apart.
_RANK = re.compile(
    r"^\s*(?:"
    r"\[(?:rank|RANK|Rank)[ _-]?(\d+)\]"
    r"|\[?default(\d+)\]?\s*:"
    r"|\[\d+,(\d+)\]<std(?:err|out)>"
    r"|\(\w*Worker\w*?[_ ]?(?:TP|PP|DP)(\d+)(?:_EP\d+)?\b"
    r"|\(\w*Worker(?:[-_]| rank=)?(\d+)[ )_]"
    r"|\[[^\]\n]{0,60}\bTP(\d+)\b[^\]\n]{0,20}\]"
    r"|(\d{1,4}):\s)"
)
_RANK_WORD = re.compile(r"\b(?:[Rr]ank|RANK)[ =:_-]{0,2}(\d{1,5})\b")
_NAMED = r"[\[(]?([A-Za-z][A-Za-z.]*[-_ #]?\d{1,4})[\])]?\s{0,12}[:|\]]"
_SOURCE = re.compile(rf"^\s*(?!E[A-Z]\d{{4}}:){_NAMED}\s*")  # "EI0006: ..." is an error code of CANN's
_LABEL = re.compile(rf"^\s*(?:\d{{1,4}}:\s|{_NAMED}\s)")
_PREFIXES = re.compile(
    r"^(?:\s*(?:\[(?:rank|default)[ _-]?\d+\]:?|default\d+:|\(\w[\w-]*(?: [A-Za-z]+=?\d+)?(?: pid=\d+)?(?:, ip=[\d.]+)?"
    r"\)"
    r"|(?:ERROR|WARNING|INFO|CRITICAL)(?: \d\d-\d\d \d\d:\d\d:\d\d)?(?: \[?[\w./]+\.py:\d+\]?)"
    r"|\[\d+,\d+\]<std(?:err|out)>:?))+ ?"
)

_WARNED = re.compile(
    r"\b(?:WARN|WARNING|INFO|DEBUG)\b|\[(?:W|I)\d{3,4} |\b[A-Za-z]*Warning: |: [IW] tensorflow/|\bwarn: "
    r"|\[(?:warning|info|debug)\s*\]"
)
_ADVICE = re.compile(r":\d+: [A-Za-z]*Warning: |\bNCCL INFO |\[c10d\] The client socket has failed to connect")
_NOT_WARNED = re.compile(r"NCCL WARN")

# The words stand to the left of the failure text: a sample, a question, an option, source code, our own words.
_MENTION = re.compile(
    r"""["'](?:text|prompt|question|answer|query|content|instruction|input|inputs|output|completion|response
        |sample|title|body|conversations?|chosen|rejected|document|description|comment|help|oom_\w+|\w*pattern\w*)["']\s*:
    |\b(?:Namespace|\w*Config|\w*Args|\w*Arguments)\(
    |^\s*(?:sample|prompt|question|answer|instruction|completion|response|example|generated|dataset|input|output|user|assistant
        |Sample|Prompt|Question|Answer|Instruction|Completion|Response|Generated|User|Human|Assistant)s?\b[^:]{0,40}:
    |\b(?:sample|prompt|generated|completion|decoded)\b[ _#\[\]\w]{0,24}[:=]\s*["']
    |^\s+(?:raise|if|elif|else|except|return|print|assert|logger|logging|warnings|self|msg|with|\#|"|'|f")\b
    |^\s*(?:\#|//|\*|>)\s
    |^\s*(?:[-+*]\s*)?(?![\w.]*(?:Error|Exception))[a-z_][\w.-]*\s*[:=]\s*["']
    |^\s*(?:commit\s)?[0-9a-f]{7,40}\s
    |::test_|\btest_\w+
    |\bin\s+str\(|\bre\.(?:search|compile|match)
    |"schema":\s*"supervise\.|\bsupervise(?:d|r)?(?:\[\d+\])?:|\bbecause[=:]|\blog_line\b|\bshort_by_mib\b
    |\b(?:grep|rg)\s+(?:-\w+\s+)*["']
    """,
    re.VERBOSE,
)
# Quoted from a log whatever its level there: found by grep or by `scan` ("out.log:12: ..."), in a document of ours,
# in a sentence of ours; or what may have happened, as Ray lists it.
_QUOTED = re.compile(
    r"""^\s*[\w./+-]+\.(?:log|out|err|txt|jsonl?):\d+:\s
    |^\s+line\ \d+:\ [a-z_]+,\ |^\s*"(?:text|because|log_line|why)":\ "
    |\b[a-z]+_[a-z_]+\ on\ rank\ \d+:\ |(?i:\b(?:common|potential\ root|possible)\ causes\b)
    """,
    re.VERBOSE,
)
_ERROR_RECORD = re.compile(
    r"""["'](?:level|levelname|severity)["']\s*:\s*["'](?i:error|critical|fatal)|\bERROR\b|\bCRITICAL\b|(?i:\bfailed:)"""
)


# A container engine's file: one JSON record for each line of the job.
_RECORD = re.compile(rb'^\{"log": ?"((?:[^"\\\r\n]|\\.)*?)(?:\\r)?(?:\\n)?", ?"stream": ?"\w+"[^\r\n]*$', re.MULTILINE)
_ESCAPED = re.compile(rb'\\(?:u00([0-7][0-9a-f])|(["\\/t]))')


def _unwrapped(found: re.Match[bytes]) -> bytes:
    return _ESCAPED.sub(_unescaped, found.group(1))


def _unescaped(found: re.Match[bytes]) -> bytes:
    code, char = found.groups()
    text = bytes([int(code, 16)]) if code else {b"t": b"\t"}.get(char, char)
    return text if text not in (b"\n", b"\r") else b" "


def cooked(block: bytes) -> bytes:
    """The block without escape codes, NULs and a container engine's records. As many line breaks as before."""
    if b'{"log":' in block:
        block = _RECORD.sub(_unwrapped, block)
    if b"\x1b" in block:
        block = _ESCAPES.sub(b"", block)
    if b"\0" in block:
        block = block.translate(None, b"\0")
    return block


def rank_of(line: str) -> int | None:
    """The rank that printed the line, by its prefix."""
    found = _RANK.match(line)
    return int(found.group(found.lastindex or 0)) if found else None


def source_of(line: str) -> str:
    """What tells the printing process from others ("rank5", "drafter-6"); empty where nothing does."""
    rank = rank_of(line)
    if rank is not None:
        return f"rank{rank}"
    found = _SOURCE.match(line)
    return found.group(1) if found else ""


def rank_word(left: str) -> int | None:
    """The rank named in words before the failure text ("rank 3 ..."), the last one."""
    found = _RANK_WORD.findall(left)
    return int(found[-1]) if found else None


def label(line: str) -> str:
    """What a launcher put before the line to name its process ("2: ", "trainer-1  | "); empty where it did not."""
    found = _LABEL.match(line)
    return found.group() if found else ""


def bare(line: str) -> str:
    """The line without the prefixes that launchers and engines put before each line."""
    return _PREFIXES.sub("", line)


def is_mention(left: str) -> bool:
    """True where the words before the failure text say that it is only spoken of."""
    return bool(_QUOTED.search(left) or (_MENTION.search(left) and not _ERROR_RECORD.search(left)))


def is_advice(left: str) -> bool:
    """True where a warning explains nothing: "file.py:3: UserWarning: ...", what NCCL and c10d tell on the way."""
    return bool(_ADVICE.search(left))


def is_warned(left: str) -> bool:
    """True where the line is a warning or less by its own level."""
    return bool(_WARNED.search(left)) and not _NOT_WARNED.search(left)


def shown(line: str, start: int = 0) -> str:
    """The line for people: at most `TEXT_CAP` characters, around `start`, without control characters."""
    if len(line) > TEXT_CAP:
        begin = max(0, min(start - 200, len(line) - TEXT_CAP))
        line = line[begin : begin + TEXT_CAP]
    if line.isprintable():
        return line.strip()
    return "".join(char if char.isprintable() or char == "\t" else "\ufffd" for char in line).strip()
