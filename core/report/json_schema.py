"""What of a JSON value does not fit a JSON schema (draft 2020-12): its usual keywords, without references.

Keywords that are not in ``_KEYWORDS`` constrain nothing, as the specification has it for unknown ones; ``$ref`` would,
and is refused.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: _is_whole(value),
}
_DEEPEST = 32


def _is_whole(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and float(value).is_integer()


def fault_of(value: Any, schema: Any, where: str = "it", depth: int = 0) -> str:
    """The first fault in words; empty where the value fits.

    Raises:
        ValueError: this is no schema, or one with references.
    """
    if isinstance(schema, bool):
        return "" if schema else f"{where} is not allowed"
    if not isinstance(schema, dict) or "$ref" in schema:
        raise ValueError("expected a JSON schema without $ref")
    if depth > _DEEPEST:
        raise ValueError("the schema is nested too deeply")
    return next((fault for fault in _faults(value, schema, where, depth) if fault), "")


def _faults(value: Any, schema: dict[str, Any], where: str, depth: int) -> Iterator[str]:
    for keyword, wanted in schema.items():
        if check := _KEYWORDS.get(keyword):
            yield check(value, wanted, where)
    if isinstance(value, dict):
        known = schema.get("properties", {})
        for name, inner in value.items():
            rest = schema.get("additionalProperties", True)
            yield fault_of(inner, known.get(name, rest), f"{name!r}", depth + 1)
    if isinstance(value, list) and "items" in schema:
        for number, inner in enumerate(value, start=1):
            yield fault_of(inner, schema["items"], f"element {number} of {where}", depth + 1)
    for keyword, fits in _OF_SEVERAL.items():
        if keyword in schema:
            fine = [not fault_of(value, one, where, depth + 1) for one in schema[keyword]]
            yield "" if fits(fine) else f"{where} fits {sum(fine)} of the {len(fine)} schemas of {keyword}"
    if "not" in schema and not fault_of(value, schema["not"], where, depth + 1):
        yield f"{where} fits what it must not be"


def _type(value: Any, wanted: Any, where: str) -> str:
    names = wanted if isinstance(wanted, list) else [wanted]
    if unknown := [name for name in names if name not in _TYPES]:
        raise ValueError(f"{unknown[0]!r} is no type of JSON")
    return "" if any(_TYPES[name](value) for name in names) else f"{where} is no {' or '.join(names)}"


def _required(value: Any, wanted: Any, where: str) -> str:
    missing = [name for name in wanted if name not in value] if isinstance(value, dict) else []
    return f"{missing[0]!r} is missing in {where}" if missing else ""


def _bound(of: Callable[[Any], Any], kind: str, fits: Callable[[Any, Any], bool], words: str) -> Callable[..., str]:
    def check(value: Any, wanted: Any, where: str) -> str:
        said = f"{where} has {words} {wanted}" if kind != "number" else f"{where} is {words} {wanted}"
        return said if _TYPES[kind](value) and not fits(of(value), wanted) else ""

    return check


def _at_least(found: Any, wanted: Any) -> bool:
    return bool(found >= wanted)


def _at_most(found: Any, wanted: Any) -> bool:
    return bool(found <= wanted)


_KEYWORDS: dict[str, Callable[[Any, Any, str], str]] = {
    "type": _type,
    "required": _required,
    "enum": lambda value, wanted, where: "" if value in wanted else f"{where} is none of {json.dumps(wanted)[:80]}",
    "const": lambda value, wanted, where: "" if value == wanted else f"{where} is not {json.dumps(wanted)[:80]}",
    "minimum": _bound(lambda value: value, "number", _at_least, "below"),
    "maximum": _bound(lambda value: value, "number", _at_most, "above"),
    "exclusiveMinimum": _bound(lambda value: value, "number", lambda one, two: one > two, "not above"),
    "exclusiveMaximum": _bound(lambda value: value, "number", lambda one, two: one < two, "not below"),
    "minLength": _bound(len, "string", _at_least, "fewer characters than"),
    "maxLength": _bound(len, "string", _at_most, "more characters than"),
    "minItems": _bound(len, "array", _at_least, "fewer elements than"),
    "maxItems": _bound(len, "array", _at_most, "more elements than"),
    "minProperties": _bound(len, "object", _at_least, "fewer fields than"),
    "maxProperties": _bound(len, "object", _at_most, "more fields than"),
    "pattern": lambda value, wanted, where: (
        f"{where} does not match {wanted!r}" if isinstance(value, str) and not re.search(wanted, value) else ""
    ),
}
_OF_SEVERAL: dict[str, Callable[[list[bool]], bool]] = {
    "allOf": all,
    "anyOf": any,
    "oneOf": lambda fine: sum(fine) == 1,
}
