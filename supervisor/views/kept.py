"""A run as far as it was read, as plain values and back: so that a view need not read all records again. No files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from supervisor.views.accounting import Books
from supervisor.views.fold import folded
from supervisor.views.run import AttemptView, Entry, RunView


class Told:
    """A run's view and its accounts, after the records taken so far."""

    def __init__(self, name: str) -> None:
        self.view = RunView(name)
        self.books = Books()

    def take(self, entry: Entry) -> None:
        """One more record."""
        self.view = folded(self.view, entry)
        self.books.take(entry)

    def plain(self) -> dict[str, Any]:
        """All of it, for JSON."""
        view = self.view._asdict()
        view["attempts"] = [_plain(each._asdict()) for each in self.view.attempts]
        return {"view": _plain(view), "books": self.books.plain()}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Told:
        """What `plain()` was made of. Raises KeyError, TypeError, ValueError for anything else."""
        told = cls("")
        of = plain["view"]
        told.view = RunView(
            **{
                **of,
                "attempts": tuple(_attempt(each) for each in of["attempts"]),
                "warnings": tuple(of["warnings"]),
                "gpus": {uuid: (index, role) for uuid, (index, role) in of["gpus"].items()},
            }
        )
        told.books = Books.of(plain["books"])
        return told


def _attempt(of: Mapping[str, Any]) -> AttemptView:
    lists = {name: tuple(of[name]) for name in ("argv", "stopped", "holders", "notes", "dumps")}
    return AttemptView(**{**of, **lists, "changed": {k: (old, new) for k, (old, new) in of["changed"].items()}})


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings that only look like dicts made into dicts."""
    return {name: dict(value) if isinstance(value, Mapping) else value for name, value in fields.items()}
