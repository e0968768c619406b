"""Reading a spec starts no process, opens no connection, imports nothing that it names and writes no file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

WATCHED = """
import json, os, sys
from pathlib import Path
from supervisor.edges import specfile
from supervisor.core.errors import SpecError
(sys.path.insert(0, sys.argv[2]))
specfile.read(Path(sys.argv[3]), {})  # what reading imports is imported now
seen = []
def hook(event, args):
    if event.startswith(("os.exec", "os.fork", "os.posix_spawn", "os.system", "subprocess", "socket", "ctypes", "pty")):
        seen.append(event)
    if event == "import" and "evil" in str(args[0]):
        seen.append(f"import {args[0]}")
    if event in ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.chmod"):
        seen.append(event)
    if event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC):
        seen.append(f"open {args[0]}")
sys.addaudithook(hook)
try:
    said = specfile.read(Path(sys.argv[1]), {"HOME": "/"})
    said.explain(), said.job_environment({})
except SpecError as error:
    pass
print(json.dumps(seen))
"""
PLAIN = "version: 1\nname: a\ncommand: [x]\n"
SPECS = {
    "a python object": "command: !!python/object/apply:os.system ['touch owned']\n",
    "a python module": "env: {A: !!python/module:evil}\n",
    "a python name": "env: {A: !!python/name:evil.main}\n",
    "a new python object": "params: !!python/object/new:evil.Thing {}\n",
    "a tag of its own": "env: {A: !evil x}\n",
    "a shell in a name": "name: $(touch owned)\n",
    "a shell in a value": "env: {A: '$(touch owned)', B: '`touch owned`', C: '${{ run.name; touch owned }}'}\n",
    "a template that calls": 'env: {A: \'${{ __import__("os").system("touch owned") }}\'}\n',
    "an expression that calls": "params:\n  knobs:\n    b: {rungs: [{m: 2}], keep: '__import__(\"evil\") * m'}\n",
    "a format that reaches out": "env: {A: '{0.__class__}', B: '%(evil)s'}\n",
    "a pattern that never ends": "health: {progress: {log: '(a+)+$(?P<step>x)'}}\n",
    "an include": "<<: !include /etc/passwd\n",
    "checks that would run": "preflight: {checks: [[touch, owned]]}\nhooks: {before_launch: [touch, owned]}\n",
    "an environment file": "env_file: /dev/null\n",
    "a venv with a start-up file": "venv: evil\n",
}


@pytest.mark.parametrize("what", SPECS)
def test_reading_it_does_nothing(tmp_path: Path, what: str):
    harmless = tmp_path / "harmless.yaml"
    harmless.write_text(PLAIN + "params: {knobs: {b: {rungs: [{m: 2, n: 4}, {m: 1, n: 8}], keep: m * n}}}\n")
    (tmp_path / "evil.py").write_text("open('owned', 'w')\n")
    spec = tmp_path / "a.yaml"
    spec.write_text(PLAIN + SPECS[what])
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, str(spec), str(tmp_path), str(harmless)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.yaml", "evil.py", "harmless.yaml"]


@pytest.mark.parametrize("name", ["..", "../x", "a/b", "/etc", "", ".hidden", "A", "a b", "a\n", "x" * 41, "-rf/../.."])
def test_a_name_cannot_leave_its_directory(home, supervise, tmp_path: Path, name: str):
    spec = tmp_path / "a.yaml"
    spec.write_text(json.dumps({"version": 1, "name": name, "command": ["true"]}))
    code, _, err = supervise("up", "-d", str(spec))
    assert code == 5
    assert "name" in err
    assert not home.runs.exists()
    for verb in ("status", "logs", "history", "down"):
        assert supervise(verb, "--", name or "..")[0] in (2, 4)
