"""Importing Gradio without the type stubs that it keeps beside its sources, for editors alone."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def without_stubs() -> Iterator[None]:
    """While the block imports Gradio, it makes no stubs.

    At each import it would read, parse and render the source of all its components to bring their ``.pyi`` files up to
    date: a second of a core, and at times a write among the installed packages. A class without a file it passes over.
    """
    found = inspect.getfile

    def getfile(object: Any) -> str:
        if isinstance(object, type) and object.__module__.startswith("gradio."):
            raise OSError("no stub is wanted")
        return found(object)

    inspect.getfile = getfile
    try:
        yield
    finally:
        inspect.getfile = found
