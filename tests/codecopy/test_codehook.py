"""What Pythons take from the copy, and what from where it lies: each a real interpreter in the working directory."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest
from trees import write


@pytest.fixture
def run(work, look, make):
    """Runs a command in the working directory as a launch from the copy would, after everything there was edited."""
    write(work, "train.py", text="import sys, helper\nprint('old', helper.SIZE, sys.argv[1:], sys.path[0], __file__)\n")
    write(work, "helper.py", "pkg/model.py", text="SIZE = 1\n")
    write(work, "pkg/train.py", text="from pkg import model\nfrom . import made\nprint('old', model.SIZE, made.WHAT)\n")
    write(work, "space/part.py", text="SIZE = 1\n")
    write(work, ".gitignore", text="out\npkg/made.py\n")
    write(work, "pkg/made.py", text="WHAT = 'ignored'\n")
    copy = make(look(work)).path
    write(work, "train.py", "pkg/train.py", text="print('new')\n")
    write(work, "helper.py", "pkg/model.py", "space/part.py", text="SIZE = 2\n")

    def ran(*command: str, **environ: str) -> str:
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(copy / "python"), "PYTHONDONTWRITEBYTECODE": "1"} | environ
        done = subprocess.run(command, cwd=work, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    ran.copy = copy
    return ran


def test_a_script_that_a_start_script_names_is_that_of_the_copy(run):
    tree = run.copy / "tree"
    wanted = f"old 1 ['--a', 'b c', ''] {tree} {tree}/train.py"
    assert run("sh", "-c", f'{sys.executable} -u train.py --a "b c" ""') == wanted
    assert run(sys.executable, "./train.py", "--a", "b c", "") == wanted


def test_the_copy_that_is_named_itself_is_run_as_it_is(run):
    assert run(sys.executable, str(run.copy / "tree" / "train.py")).startswith("old 1 []")


def test_a_module_is_that_of_the_copy_and_what_git_ignores_is_where_it_lies(run):
    assert run(sys.executable, "-m", "pkg.train") == "old 1 ignored"


def test_code_that_is_found_by_another_path_is_that_of_the_copy(run, work, tmp_path):
    (tmp_path / "alias").symlink_to(work)
    say = "import pkg.model, space.part; print(pkg.model.SIZE, space.part.SIZE, pkg.model.__file__)"
    there = f"1 1 {run.copy}/tree/pkg/model.py"
    assert run(sys.executable, "-c", say) == there
    path = f"{run.copy}/python:{tmp_path}/alias"
    assert run(sys.executable, "-c", f"import os; os.chdir('/'); {say}", PYTHONPATH=path) == there


def test_workers_that_a_process_starts_take_the_copy_too(run, work):
    write(work, "later.py", text="x = 1\n")  # made since: not in the copy, so it is where it lies
    text = """
        import multiprocessing, later, pkg.model
        from concurrent.futures import ProcessPoolExecutor
        def size():
            return pkg.model.SIZE
        if __name__ == "__main__":
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                print(pool.submit(size).result(), later.x)
    """
    write(run.copy / "tree", "spawn.py", text=textwrap.dedent(text))
    write(work, "spawn.py", text="print('new')\n")
    assert run(sys.executable, "spawn.py", PYTHONPATH=f"{run.copy}/python:{work}") == "1 1"


def test_another_sitecustomize_still_runs(run, tmp_path):
    write(tmp_path, "site/sitecustomize.py", text="import builtins; builtins.mine = 'there'\n")
    path = f"{run.copy}/python:{tmp_path}/site"
    assert run(sys.executable, "-c", "print(mine)", PYTHONPATH=path) == "there"
    assert run(sys.executable, "-c", "import sitecustomize; print(sitecustomize.__file__)", PYTHONPATH=path) == str(
        tmp_path / "site" / "sitecustomize.py"
    )


def test_programs_of_elsewhere_are_left_alone(run, tmp_path):
    write(tmp_path, "other.py", text="import json; print(json.__name__, __file__)\n")
    assert run(sys.executable, str(tmp_path / "other.py")) == f"json {tmp_path}/other.py"
    assert run("sh", "-c", f"echo 'print(1)' | {sys.executable} -") == "1"


def test_a_package_installed_to_be_edited_is_that_of_the_copy(run, work, tmp_path):
    finder = f"""
        import sys, importlib.util
        class Editable:
            @staticmethod
            def find_spec(name, path=None, target=None):
                if name == "mine":
                    return importlib.util.spec_from_file_location(name, "{work}/helper.py")
        sys.meta_path.append(Editable)
    """
    write(tmp_path, "site/sitecustomize.py", text=textwrap.dedent(finder))
    path = f"{run.copy}/python:{tmp_path}/site"
    assert run(sys.executable, "-c", "import mine; print(mine.SIZE)", PYTHONPATH=path) == "1"
