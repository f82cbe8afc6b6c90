"""Routes of ours added to application after application, their parameters analysed once for all of them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from fastapi import routing

_dependants: dict[tuple[object, ...], Any] = {}
_fields: dict[tuple[object, ...], Any] = {}


@contextmanager
def analysed_once() -> Iterator[None]:
    """Within the block FastAPI remembers what it found out about a function and about a type.

    A test's studio has some seventy routes, and pydantic's look at each of their parameters took most of a test's time.
    The functions are new ones for each studio; what they ask for stands in their code.
    """
    with (
        patch.object(routing, "get_dependant", _kept_dependant(routing.get_dependant)),
        patch.object(routing, "create_model_field", _kept_field(routing.create_model_field)),
    ):
        yield


def _kept_dependant(look: Callable[..., Any]) -> Callable[..., Any]:
    def kept(*, path: str, call: Callable[..., Any], **more: Any) -> Any:
        key = (path, getattr(call, "__code__", call), repr(getattr(call, "__annotations__", "")), repr(more))
        if key not in _dependants:
            _dependants[key] = look(path=path, call=call, **more)
        found = _dependants[key]
        return replace(found, call=call, dependencies=[*found.dependencies])

    return kept


def _kept_field(make: Callable[..., Any]) -> Callable[..., Any]:
    def kept(**asked: Any) -> Any:
        key = tuple((name, repr(value)) for name, value in sorted(asked.items()))
        if key not in _fields:
            _fields[key] = make(**asked)
        return _fields[key]

    return kept
