"""Parts of a spec that change nothing of a recovery: who is told what, and which trackers the job reports to."""

from __future__ import annotations

from msgspec import Struct

NOTICES: dict[str, str] = {
    "started": "the first attempt of an episode made its first progress",
    "failed": "an attempt failed and will be relaunched",
    "recovered": "an attempt made its first progress after one that failed",
    "degraded": "the run goes on with less: it became slow, or a rule says to tell and not to act",
    "foretold": "memory or a disk will be full at the present trend",
    "waiting": "others hold the run's GPUs and are waited for, or a relaunch waits for `resume`",
    "warned": "something that a person should know and that changes nothing",
    "halted": "recovery gave up; the message names the next command",
    "stopped": "the run was ended by its user",
    "finished": "the run is done",
}
"""What `notify.on` may name, and when it is told."""

BY_DEFAULT = ("recovered", "degraded", "foretold", "waiting", "halted", "finished")
ENDS = frozenset({"halted", "stopped", "finished"})
"""Told however much was told before."""


class Notify(Struct, frozen=True, kw_only=True):
    """Who is told, of what. `urls_from` and `heartbeat_from` name environment variables: the addresses are secrets.

    `command` is an argv list that gets each message as JSON on its standard input. `morning` is `HH:MM` of the box.
    """

    urls_from: str = "SUPERVISE_NOTIFY"
    on: tuple[str, ...] = BY_DEFAULT
    command: tuple[str, ...] = ()
    heartbeat_from: str | None = None
    heartbeat_every_s: float = 300.0
    morning: str | None = None


class Tracking(Struct, frozen=True, kw_only=True):
    """Which trackers the job reports to. `wandb` and `mlflow` are run ids that every attempt gets; `auto`: made of the
    run's first request. `tensorboard` is an absolute folder; `loss` and `rate` name its scalars."""

    wandb: str | None = None
    wandb_resume: str = "allow"
    mlflow: str | None = None
    tensorboard: str | None = None
    loss: str | None = None
    rate: str | None = None


class NotifyIntended(Struct, frozen=True, kw_only=True):
    """A person will be told this, once per `key`. `held_back`: more was told in the last hour than anybody reads."""

    key: str
    on: str
    title: str
    text: str
    held_back: bool = False


class Notified(Struct, frozen=True, kw_only=True):
    """The message went out to all who are to be told; `why`: it did not, and will not be tried again."""

    key: str
    why: str = ""
