"""`notify` and `tracking`: who is told, and which trackers the job reports to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from supervisor.core.around import BY_DEFAULT, Notify, Tracking
from supervisor.edges.specfile.shape import DROPPED
from supervisor.edges.specfile.validate import Book


def notify_of(book: Book, data: Mapping[str, Any]) -> Notify | None:
    """The section with its defaults; None where nobody is to be told."""
    if "notify" not in data:
        return None
    given = data["notify"]
    on = tuple(dict.fromkeys(word for word in given.get("on", BY_DEFAULT) if word is not DROPPED))
    heartbeat = given.get("heartbeat", {})
    if "degraded" not in on and any(_only_tells(data)):
        book.warn(("notify",), "a rule says `notify`, and `on` does not name degraded: nobody would be told of it")
    if heartbeat.get("every", 60.0) < 10.0:
        book.wrong(("notify", "heartbeat", "every"), "must be 10s at least")
    return Notify(
        urls_from=given.get("urls_from", "SUPERVISE_NOTIFY"),
        on=on,
        command=tuple(word for word in given.get("command", ()) if word is not DROPPED),
        heartbeat_from=heartbeat.get("url_from"),
        heartbeat_every_s=heartbeat.get("every", 300.0),
        morning=given.get("morning"),
    )


def _only_tells(data: Mapping[str, Any]) -> list[bool]:
    """For each rule and role, whether it tells and does not act."""
    rules = [rule for rule in data.get("recovery", {}).get("rules", []) if isinstance(rule, dict)]
    roles = [role for role in data.get("topology", {}).values() if isinstance(role, dict)]
    return [rule.get("do") == "notify" for rule in rules] + [role.get("silent") == "notify" for role in roles]


def warn_of_unset(book: Book, notify: Notify | None, environ: Mapping[str, str]) -> None:
    """Says which variables hold no address here: they are read where `up` is typed."""
    if notify is None:
        return
    if not environ.get(notify.urls_from, "").strip() and not notify.command:
        book.warn(("notify",), f"{notify.urls_from} is not set here: nobody is told. See: supervise notify test SPEC")
    if notify.heartbeat_from and not environ.get(notify.heartbeat_from, "").strip():
        book.warn(("notify", "heartbeat"), f"{notify.heartbeat_from} is not set here: no heartbeat is sent")


def tracking_of(data: Mapping[str, Any], paths: Callable[[str], str]) -> Tracking | None:
    """The section with its defaults; None where the job reports to nobody."""
    if "tracking" not in data:
        return None
    given = data["tracking"]
    wandb, board = given.get("wandb"), given.get("tensorboard")
    options = wandb if isinstance(wandb, dict) else {"id": wandb}
    scalars = board if isinstance(board, dict) else {"logdir": board} if board else {}
    return Tracking(
        wandb=options.get("id", "auto"),
        wandb_resume=options.get("resume", "allow"),
        mlflow=given.get("mlflow"),
        tensorboard=paths(scalars["logdir"]) if scalars else None,
        loss=scalars.get("loss"),
        rate=scalars.get("rate"),
    )
