"""docs/: what is generated is up to date, what is typed works, what is linked is there.

A fenced `console` block holds commands (`$ ...`), run in order in one folder for each page; each must succeed. A `yaml`
block whose first line is a comment with a file's name is that file.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml

from supervisor.cli import Verbs
from supervisor.core.kinds import Kind
from supervisor.edges.remote import find
from supervisor.edges.specfile.meanings import meanings
from supervisor.views import spec_reference

sys.path.insert(0, str(Path(__file__).parent.parent / "e2e"))  # boxes.py
from boxes import Box

REPO = Path(__file__).parents[2]
PAGES = {path.name: path.read_text(encoding="utf-8") for path in sorted((REPO / "docs").glob("*.md"))}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)


def blocks(page: str, kind: str) -> list[str]:
    return [text for found, text in BLOCK.findall(PAGES[page]) if found == kind]


def commands(page: str) -> list[str]:
    return [line[2:] for text in blocks(page, "console") for line in text.splitlines() if line.startswith("$ ")]


def test_the_spec_reference_is_the_one_of_this_version():
    assert PAGES["spec.md"] == spec_reference.page(), "python -m supervisor.views.spec_reference > docs/spec.md"


def test_every_key_has_a_meaning_and_every_meaning_a_key():
    known = dict(spec_reference.paths())
    assert sorted(set(meanings()) - set(known)) == []
    assert sorted(path for path, is_section in known.items() if not is_section and path not in meanings()) == []


def test_the_runbook_knows_every_kind_of_failure():
    rows = set(re.findall(r"^\| `(\w+)` \|", PAGES["runbook.md"], re.M))
    assert rows == {kind.value for kind in Kind if kind is not Kind.NONE}


def test_every_link_leads_somewhere():
    broken = []
    for page, text in PAGES.items():
        for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
            path, _, anchor = target.partition("#")
            there = PAGES.get(path or page, "")
            headings = {
                re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in re.findall(r"^#+ (.*)", there, re.M)
            }
            if not (REPO / "docs" / (path or page)).exists() or (anchor and anchor not in headings):
                broken.append((page, target))
    assert broken == []


def test_the_hosts_of_the_page_are_understood(tmp_path: Path):
    (text,) = (
        block for block in blocks("elsewhere.md", "yaml") if block.startswith("# ~/.config/supervise/config.yaml")
    )
    (tmp_path / "config.yaml").write_text(text)
    for name in yaml.safe_load(text)["hosts"]:
        assert find(name, tmp_path / "config.yaml").ssh


def named() -> list[str]:
    """Commands that the pages name and that no console block runs: in a sentence, or on a machine that is not here."""
    found: set[str] = set()
    for page in PAGES:
        found |= {line for text in blocks(page, "sh") for line in text.splitlines() if line.startswith("supervise ")}
        prose = BLOCK.sub("", PAGES[page])
        found |= {" ".join(one.split()) for one in re.findall(r"`(supervise [^`]+)`", prose)}
    return sorted(found)


@pytest.mark.parametrize("line", named())
def test_a_command_that_is_named_is_a_verb_with_those_options(line: str):
    group = Verbs(name="supervise")
    words = re.split(r"[ ]--[ ]|[|&>]", line.removeprefix("supervise "))[0].split()
    if words[0] == "--host":
        words = words[2:]
    if not words or words[0].isupper() or words[0].startswith("VERB"):
        return
    command = group.get_command(click.Context(group), words[0])
    assert command is not None, f"no verb {words[0]}"
    while isinstance(command, click.Group) and len(words) > 1:
        words = words[1:]
        command = command.commands[words[0]]
    options = {option for param in command.params for option in param.opts}
    assert {word for word in words if word.startswith("-")} <= options


@pytest.mark.real
@pytest.mark.timeout(400)
@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)])
def test_what_a_page_says_to_type_works(page: str, tmp_path: Path):
    box = Box(tmp_path)
    try:
        _files(box, page)
        script = "set -euo pipefail\n" + "\n".join(f"echo {_quoted(f'$ {line}')}\n{line}" for line in commands(page))
        environ = box.environ | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "SUPERVISE_SIM_SPEED": "4",
        }
        done = subprocess.run(
            ["bash", "-c", script], cwd=box.work, env=environ, capture_output=True, text=True, timeout=380
        )
        assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        for name in box.home.names():
            box.night(name)
    finally:
        box.close()


def _files(box: Box, page: str) -> None:
    """The files that the page shows, and for the runbook a run that is halted."""
    for text in blocks(page, "yaml"):
        if name := re.match(r"# ([\w.-]+\.yaml)\n", text):
            box.write(name[1], text)
    if page == "runbook.md":
        night = box.up(box.spec("my-run", "echo 'Traceback (most recent call last):'; echo 'NameError: x'; exit 1"))
        night.wait(code=9)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
