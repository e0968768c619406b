"""A real sshd on loopback, of this test alone: its own port, keys, configuration and user configuration for ssh."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from supervisor.edges.host import free_port

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:" + os.environ.get("PATH", ""))


class Far:
    """The far side. `config` is a folder for XDG_CONFIG_HOME with a host `box` that leads there."""

    def __init__(self, root: Path) -> None:
        if SSHD is None or shutil.which("ssh") is None:
            pytest.skip("no sshd here: apt-get install openssh-server (scripts/test does)")
        self.root = root
        root.mkdir(parents=True)
        self.home = root / "state"
        for name in ("host", "user"):
            keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(root / name)]
            subprocess.run(keygen, check=True, timeout=30)
        (root / "authorized").write_text((root / "user.pub").read_text())
        (root / "authorized").chmod(0o600)
        self.port = free_port()  # none of those that the kernel may give to another test meanwhile
        self._configure()
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd as root wants its empty folder
        argv = [SSHD, "-D", "-e", "-f", str(root / "sshd_config")]
        self._log = open(root / "sshd.log", "wb")  # noqa: SIM115 - closed with the server
        self.server = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log)
        self._until_it_listens()

    def _configure(self) -> None:
        far = {"SUPERVISE_HOME": self.home, "SUPERVISE_LOCKS": self.root / "locks", "PYTHONDONTWRITEBYTECODE": "1"}
        lines = [
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {self.root / 'host'}",
            f"AuthorizedKeysFile {self.root / 'authorized'}",
            f"PidFile {self.root / 'sshd.pid'}",
            "StrictModes no",
            "UsePAM no",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PermitRootLogin prohibit-password",
            "PrintMotd no",
            "SetEnv " + " ".join(f"{name}={value}" for name, value in far.items()),
        ]
        (self.root / "sshd_config").write_text("\n".join(lines) + "\n")
        client = [
            "Host far-box",
            "  HostName 127.0.0.1",
            f"  Port {self.port}",
            f"  IdentityFile {self.root / 'user'}",
            "  IdentitiesOnly yes",
            "  IdentityAgent none",
            "  StrictHostKeyChecking no",
            f"  UserKnownHostsFile {self.root / 'known'}",
            "  LogLevel ERROR",
        ]
        (self.root / "ssh_config").write_text("\n".join(client) + "\n")
        program = Path(sys.executable).with_name("supervise")
        echo = self.root / "inside.sh"  # a container command: says that it was passed through, runs the rest as it is
        echo.write_text('#!/bin/sh\nSUPERVISE_INSIDE="$1"; export SUPERVISE_INSIDE; shift 2; exec "$@"\n')
        echo.chmod(0o755)
        words = self.root / "words.sh"
        words.write_text('#!/bin/sh\nprintf "<%s>" "$@"; printf "%s" "$SUPERVISE_INSIDE"\n')
        words.chmod(0o755)
        config = self.root / "config" / "supervise"
        config.mkdir(parents=True)
        ssh = f"[-F, {self.root / 'ssh_config'}, far-box]"
        (config / "config.yaml").write_text(
            "hosts:\n"
            f"  box: {{ssh: {ssh}, supervise: {program}}}\n"
            f"  ct200: {{ssh: {ssh}, exec: [{echo}, '200', --], supervise: {program}}}\n"
            f"  words: {{ssh: {ssh}, supervise: {words}}}\n"
            f"  words200: {{ssh: {ssh}, exec: [{echo}, '200', --], supervise: {words}}}\n"
            f"  lost: {{ssh: {ssh}, supervise: nosuch-supervise}}\n"
            "  dead: {ssh: [-o, ConnectTimeout=3, -p, '9', 127.0.0.1]}\n"
        )

    def _until_it_listens(self) -> None:
        deadline_s = time.monotonic() + 30
        while time.monotonic() < deadline_s:
            assert self.server.poll() is None, (self.root / "sshd.log").read_text()
            with socket.socket() as test:
                if test.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.01)
        pytest.fail("sshd does not listen")

    @property
    def environ(self) -> dict[str, str]:
        """The near side's environment: another state directory, the hosts' configuration."""
        return {
            **os.environ,
            "XDG_CONFIG_HOME": str(self.root / "config"),
            "SUPERVISE_HOME": str(self.root / "near"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def argv(self, *words: str, host: str = "box") -> list[str]:
        return [sys.executable, "-m", "supervisor.cli", "--host", host, *words]

    def supervise(self, *words: str, host: str = "box", text: str = "") -> subprocess.CompletedProcess[str]:
        argv = self.argv(*words, host=host)
        return subprocess.run(argv, env=self.environ, input=text, capture_output=True, text=True, timeout=120)

    def close(self) -> None:
        self.server.terminate()
        self.server.wait(30)
        self._log.close()
