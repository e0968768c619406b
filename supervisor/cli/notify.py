"""`supervise notify test`: sends a message to all who would be told, and says who took it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click

from supervisor.cli import common
from supervisor.core.errors import Exit, Refusal


@click.group("notify")
def command() -> None:
    """Try who is told of a run."""


@command.command("test")
@click.argument("spec", type=click.Path(path_type=Path), required=False)
@click.option("--heartbeat", is_flag=True, help="Send one heartbeat too: it may count as life at its receiver.")
def test(spec: Path | None, heartbeat: bool) -> None:
    """Send a test message as SPEC's `notify` says; without SPEC, to the addresses in SUPERVISE_NOTIFY.

    Addresses are taken from the environment and never shown. Exit 0 when everybody took it, else 1.
    """
    from supervisor.core.around import Notify
    from supervisor.edges import notify, specfile

    config, name, cwd = Notify(), "test", None
    if spec is not None:
        read = specfile.load(spec, dict(os.environ))
        if read.notify is None:
            raise Refusal(Exit.SPEC_INVALID, f"{spec} has no `notify`: nobody is told. Write notify: {{on: [halted]}}")
        config, name, cwd = read.notify, read.name, read.workdir
    places = notify.places(os.environ.get(config.urls_from, ""), config.command, cwd)
    if not places:
        raise Refusal(
            Exit.ERROR,
            f"nobody to tell: {config.urls_from} holds no address and `notify.command` is not given. "
            f"Set it, as in: export {config.urls_from}=https://HOST/PATH (several are parted by spaces)",
        )
    failed = _told(notify.deliver_all(places, _notice(name)))
    if heartbeat:
        variable = config.heartbeat_from or ""
        url = os.environ.get(variable, "")
        why = notify.get(url) if url else f"{variable or '`notify.heartbeat`'} is not set"
        failed = _told({"heartbeat": why}) or failed
    common.leave(Exit.ERROR if failed else Exit.OK)


def _notice(name: str) -> dict[str, str]:
    host = os.uname().nodename
    return {
        "id": f"test-{time.time_ns()}",
        "run": name,
        "host": host,
        "event": "test",
        "title": f"{name}: test on {host}",
        "text": "This is how you are told of this run.",
        "at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def _told(came: dict[str, str]) -> bool:
    """Says what came of each; True when one failed."""
    for name, why in came.items():
        click.echo(f"{name}: {why or 'delivered'}")
    return any(came.values())
