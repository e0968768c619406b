"""Which machine a name means, and what ssh is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.edges.remote import BadHosts, Host, command, config_path, find


def config(folder: Path, text: str) -> Path:
    path = folder / "config.yaml"
    path.write_text(text)
    return path


def test_a_name_that_no_file_knows_is_sshs_own_destination(tmp_path: Path):
    assert find("root@box", tmp_path / "none.yaml") == Host("root@box", ("root@box",))


def test_a_container_command_follows_ssh(tmp_path: Path):
    path = config(tmp_path, "hosts: {ct200: {ssh: root@box, exec: [pct, exec, '200', --]}}\n")
    host = find("ct200", path)
    assert command(host, ["status", "my run"], tty=False) == (
        "ssh", "-T", "root@box", "pct exec 200 -- supervise --far status 'my run'",
    )  # fmt: skip
    assert command(host, ["attach"], tty=True) == ("ssh", "-t", "root@box", "pct exec 200 -- supervise attach")


def test_a_container_command_may_differ_where_there_is_a_terminal(tmp_path: Path):
    text = "hosts: {d: {ssh: box, exec: [docker, exec, -i, c], exec_tty: [docker, exec, -it, c]}}\n"
    host = find("d", config(tmp_path, text))
    assert command(host, ["attach"], tty=True)[-1] == "docker exec -it c supervise attach"
    assert command(host, ["logs"], tty=False)[-1] == "docker exec -i c supervise --far logs"


def test_a_number_is_a_word_and_a_string_is_a_destination(tmp_path: Path):
    path = config(tmp_path, "hosts: {a: {ssh: [-p, 2222, box]}, b: other}\n")
    assert find("a", path).ssh == ("-p", "2222", "box")
    assert find("b", path).ssh == ("other",)


def test_a_program_below_the_home_directory_there_is_left_to_its_shell(tmp_path: Path):
    path = config(tmp_path, "hosts: {a: {supervise: ~/.supervise-venv/bin/supervise}}\n")
    assert command(find("a", path), ["logs", "~/it's"], tty=True)[-1].startswith(
        "~/.supervise-venv/bin/supervise logs '"
    )


@pytest.mark.parametrize("name", ["-oProxyCommand=touch /tmp/x", ""])
def test_a_name_is_never_an_option_of_ssh(tmp_path: Path, name: str):
    with pytest.raises(BadHosts, match="does not begin with a dash"):
        find(name, tmp_path / "none.yaml")


@pytest.mark.parametrize(
    "text", ["hosts: [a]", "hosts: {a: {shh: b}}", "hosts: {a: {exec: []}}", "hosts: {a: {ssh: {b: c}}}", "{", "- a"]
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, text: str):
    with pytest.raises(BadHosts, match=r"config\.yaml"):
        find("a", config(tmp_path, text))


def test_the_file_lies_in_the_users_configuration():
    assert config_path({"HOME": "/h"}) == Path("/h/.config/supervise/config.yaml")
    assert config_path({"HOME": "/h", "XDG_CONFIG_HOME": "/x"}) == Path("/x/supervise/config.yaml")
    assert config_path({"HOME": "/h", "XDG_CONFIG_HOME": "rel"}) == Path("/h/.config/supervise/config.yaml")
