"""The job's environment, and what of it must never be shown."""

from __future__ import annotations

import pytest

from supervisor.core.errors import Exit, Refusal
from supervisor.edges.specfile.secrets import is_secret_name


def test_the_job_gets_the_environment_of_up_less_ours_then_env_file_then_env(specs):
    (specs.folder / "job.env").write_text("# comment\nexport A=file\nB='quoted value'\nC=x # tail\nD=\n\n")
    file = specs.read("env_file: job.env\nenv: {A: spec}")
    env = file.job_environment(
        {"HOME": "/h", "TMUX": "1", "TMUX_PANE": "2", "SUPERVISE_HOME": "/s", "A": "up", "PATH": "/bin"}
    )
    assert env == {"HOME": "/h", "PATH": "/bin", "A": "spec", "B": "quoted value", "C": "x", "D": ""}


def test_the_venv_comes_first_and_pythonhome_goes(specs):
    file = specs.read("venv: /venv")
    env = file.job_environment({"PATH": "/bin", "PYTHONHOME": "/x", "VIRTUAL_ENV": "/supervise"})
    assert env == {"PATH": "/venv/bin:/bin", "VIRTUAL_ENV": "/venv"}
    assert file.job_environment({})["PATH"] == "/venv/bin"
    assert file.activate_scripts() == ()
    assert specs.read("").activate_scripts() == ()


def test_a_conda_prefix_is_named_as_conda_names_it(specs):
    prefix = specs.folder / "envs" / "train"
    (prefix / "conda-meta").mkdir(parents=True)
    (prefix / "etc/conda/activate.d").mkdir(parents=True)
    (prefix / "etc/conda/activate.d/cuda.sh").touch()
    file = specs.read(f"venv: {prefix}")
    env = file.job_environment({"VIRTUAL_ENV": "/other", "PATH": "/bin"})
    assert env == {"PATH": f"{prefix}/bin:/bin", "CONDA_PREFIX": str(prefix), "CONDA_DEFAULT_ENV": "train"}
    assert file.activate_scripts() == (f"{prefix}/etc/conda/activate.d/cuda.sh",)


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("HF_TOKEN", True),
        ("WANDB_API_KEY", True),
        ("aws_secret_access_key", True),
        ("PASSWORD", True),
        ("MY_CREDENTIAL_FILE", True),
        ("TOKENIZERS_PARALLELISM", False),
        ("KEYBOARD", False),
        ("MONKEY", False),
        ("CREDENTIALS", False),
    ],
)
def test_a_secret_is_known_by_a_whole_word_of_its_name(name, secret):
    assert is_secret_name(name) is secret


def test_values_of_secrets_are_replaced_wherever_the_spec_is_shown(specs):
    (specs.folder / "job.env").write_text("PLAIN=fromfile\n")
    text = """
env_file: job.env
secrets: [PIN_CODE, ABSENT]
env: {HF_TOKEN: hf_abcdef, SHORT_KEY: abc, PIN_CODE: 123456789, NOT: secret, MAX_TOKEN: 4096000}
params: {protected: {max_token: {value: 4096000, env: OTHER}}}
"""
    file = specs.read(text.replace("MAX_TOKEN: 4096000", "THE_TOKEN: 4096000"))
    spec = file.spec
    assert spec.env == {
        "PLAIN": "<secret>",
        "HF_TOKEN": "<secret>",
        "SHORT_KEY": "abc",
        "PIN_CODE": "<secret>",
        "NOT": "secret",
        "THE_TOKEN": "4096000",
    }
    assert spec.secrets == ("PIN_CODE", "ABSENT", "PLAIN", "HF_TOKEN")
    environ = {"ABSENT": "inherited-secret", "GH_TOKEN": "ghp_zzzzzz", "LESS_KEY": "x"}
    assert file.secret_values(environ) == ("123456789", "fromfile", "ghp_zzzzzz", "hf_abcdef", "inherited-secret")
    shown = file.redacted_source(environ)
    assert "hf_abcdef" not in shown
    assert "HF_TOKEN: <secret>" in shown
    assert "hf_abcdef" not in repr(file)
    assert file.job_environment({})["HF_TOKEN"] == "hf_abcdef"


def test_a_secret_within_a_longer_one_leaves_no_rest(specs):
    file = specs.read("env: {A_KEY: abcdef, B_KEY: abcdefghi, C: x}")
    assert "ghi" not in file.redacted_source({})


def test_a_secret_does_not_get_into_a_warning(specs):
    spec = specs.load("secrets: [torchx]\nenv: {HF_TOKEN: 2.11.0-secret}\npins: {torch: 2.11.0-secret}\nvenv: v")
    assert "2.11.0-secret" not in "".join(spec.warnings)


def test_a_wrong_line_of_the_env_file_is_a_mistake_of_that_file(specs):
    (specs.folder / "job.env").write_text("A=1\nno equals\n1B=2\n")
    said = specs.mistakes("env_file: job.env\nsteps: x")
    assert said[0].startswith("5:1: steps")
    assert said[1:] == [
        f"{specs.folder}/job.env:2:1: is no NAME=value",
        f"{specs.folder}/job.env:3:1: is no NAME=value",
    ]


def test_a_job_is_not_launched_without_its_env_file(specs):
    file = specs.read("env_file: missing.env")
    with pytest.raises(Refusal, match=r"missing\.env: No such file") as caught:
        file.job_environment({})
    assert caught.value.exit == Exit.PREFLIGHT


def test_a_template_is_no_secret_and_a_named_secret_is_no_template(specs):
    text = "env: {KEY_FILE: '${{ workdir }}/key', OTHER: x}"
    assert specs.load(text).env["KEY_FILE"] == "${{ workdir }}/key"
    said = specs.mistakes(text + "\nsecrets: [KEY_FILE]")
    assert "KEY_FILE is named under `secrets`: its value is taken literally" in said[0]
