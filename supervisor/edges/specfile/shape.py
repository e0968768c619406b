"""What a shape is: a type for pydantic's validator, a JSON Schema, and the keys for "did you mean". No key of the spec.

pydantic-core is used directly: its validator finds every mistake at once, and building it from these tables takes a
tenth of the time that models take (import and build 35 ms instead of 140 ms of `supervise up`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from msgspec import Struct, field
from pydantic_core import PydanticCustomError, SchemaValidator, core_schema

Json = dict[str, Any]

FORMS = ("<value>", "<list>", "<mapping>")
"""Tags of unions; they stand in the locations of errors and in no path of a file."""


DROPPED = object()
"""Stands in a list for an item that was wrong, so that the items after it keep their indices."""


class Shape(Struct, frozen=True):
    """One type. `keys` are those of a closed mapping, `item` the type inside a list or an open mapping."""

    core: Any
    json: Json
    keys: Mapping[str, Shape] = field(default_factory=dict)
    item: Shape | None = None
    forms: Mapping[str, Shape] = field(default_factory=dict)

    def validator(self) -> SchemaValidator:
        """The validator of this shape."""
        return SchemaValidator(self.core)

    def inside(self, part: str | int) -> Shape | None:
        """The shape that a step of an error's location leads to."""
        if part in self.forms:
            return self.forms[str(part)]
        if isinstance(part, str) and part in self.keys:
            return self.keys[part]
        return self.item


def wrong(what: str) -> NoReturn:
    """Refuses a value with these words."""
    raise PydanticCustomError("spec", "{what}", {"what": what})


def leaf(check: Callable[[Any], Any], json: Json) -> Shape:
    """A single value: `check` takes what stands in the file and gives the plain value, or calls `wrong`."""
    return Shape(core_schema.no_info_plain_validator_function(check), json)


def mapping(keys: Mapping[str, Shape], *, required: tuple[str, ...] = ()) -> Shape:
    """A mapping with these keys and no others."""
    fields = {key: core_schema.typed_dict_field(shape.core, required=key in required) for key, shape in keys.items()}
    json: Json = {
        "type": "object",
        "properties": {key: shape.json for key, shape in keys.items()},
        "additionalProperties": False,
    }
    if required:
        json["required"] = list(required)
    return Shape(core_schema.typed_dict_schema(fields, extra_behavior="forbid"), json, keys)


def list_of(item: Shape, *, at_least: int = 0) -> Shape:
    """A list of these."""
    json: Json = {"type": "array", "items": item.json} | ({"minItems": at_least} if at_least else {})
    core = core_schema.no_info_wrap_validator_function(_unless_dropped, item.core)
    return Shape(core_schema.list_schema(core, min_length=at_least or None), json, item=item)


def _unless_dropped(value: Any, check: Callable[[Any], Any]) -> Any:
    return value if value is DROPPED else check(value)


def map_of(value: Shape, key: Shape | None = None) -> Shape:
    """A mapping with keys of the user's."""
    json: Json = {"type": "object", "additionalProperties": value.json}
    if key is not None and "pattern" in key.json:
        json["propertyNames"] = {"pattern": key.json["pattern"]}
    return Shape(core_schema.dict_schema(key.core if key else None, value.core), json, item=value)


def either(*, value: Shape | None = None, items: Shape | None = None, keys: Shape | None = None) -> Shape:
    """A union told apart by its form: a single value, a list, or a mapping."""
    forms = {tag: shape for tag, shape in zip(FORMS, (value, items, keys), strict=True) if shape is not None}
    core = core_schema.tagged_union_schema({tag: shape.core for tag, shape in forms.items()}, _form)
    return Shape(core, {"anyOf": [shape.json for shape in forms.values() if shape.json != NEVER]}, forms=forms)


NEVER: Json = {"not": {}}
"""The JSON Schema of a form that is there only for its message."""


def _form(value: Any) -> str:
    return "<mapping>" if isinstance(value, dict) else "<list>" if isinstance(value, list) else "<value>"
