"""Untrusted YAML, read within bounds of size, depth and number of values, and without aliases.

A few hundred bytes of aliases can expand to gigabytes, and deep nesting can end the process. So the text's events are
checked before anything is built of them.
"""

import re
import reprlib
from typing import Any

import yaml

MOST_YAML_BYTES = 256 << 10
MOST_DEPTH = 20
MOST_VALUES = 20_000
_LONG_NUMBER = re.compile(r"[-+0-9_:.]{100,}")
"""A long number in base sixty (``1:30:00``) can take a minute to read."""
NOT_YAML = (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError)
"""PyYAML's constructors raise Python's own errors for scalars such as the date 2026-13-45 or ``!!bool perhaps``."""

_OPENS = (yaml.SequenceStartEvent, yaml.MappingStartEvent)
_CLOSES = (yaml.SequenceEndEvent, yaml.MappingEndEvent)
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times faster


def load_yaml(text: str) -> Any:
    """As ``yaml.safe_load``, for a text of at most ``MOST_YAML_BYTES`` characters.

    Raises:
        ValueError: it is longer, deeper or wider than that, or has aliases; or any other of ``NOT_YAML``.
    """
    if len(text) > MOST_YAML_BYTES:
        raise ValueError(f"longer than {MOST_YAML_BYTES:,} characters")
    depth = 0
    for count, event in enumerate(yaml.parse(text, Loader=_LOADER)):
        if isinstance(event, yaml.AliasEvent):
            raise ValueError(f"aliases (*{str(event.anchor)[:40]}) are not read")
        if isinstance(event, yaml.ScalarEvent) and _LONG_NUMBER.fullmatch(event.value):
            raise ValueError(f"a number of {len(event.value):,} digits")
        depth += isinstance(event, _OPENS) - isinstance(event, _CLOSES)
        if depth > MOST_DEPTH:
            raise ValueError(f"more than {MOST_DEPTH} values within each other")
        if count > MOST_VALUES:
            raise ValueError(f"more than {MOST_VALUES:,} values")
    loader = _LOADER(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def shown(value: object) -> str:
    """The beginning of a value, for errors."""
    short = reprlib.Repr()
    short.maxlevel, short.maxstring, short.maxother = 2, 80, 80
    try:
        return short.repr(value)
    except ValueError:  # a number with more digits than Python prints
        return f"a very long {type(value).__name__}"
