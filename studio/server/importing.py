"""Importing Gradio without what New run has no use for: half of the second that it takes.

Where another version of Gradio is made otherwise, its import takes longer and nothing else changes; a test counts.
"""

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


@contextmanager
def imported_lightly() -> Iterator[None]:
    """For the studio's import of Gradio: no stubs, no rendered docstrings, and pandas when it is asked for."""
    with without_stubs(), pandas_later():
        yield


@contextmanager
def without_stubs() -> Iterator[None]:
    """While the block imports Gradio, it makes nothing that is for editors alone.

    At each import it would read, parse and render the source of all its components to bring the ``.pyi`` files beside
    them up to date: a second of a core, and at times a write among the installed packages. A class without a file it
    passes over. And it would put the component's name into the docstring of each of 200 listeners, each a template.
    """
    import jinja2

    found, template = inspect.getfile, jinja2.Template

    def getfile(object: Any) -> str:
        if isinstance(object, type) and object.__module__.startswith("gradio."):
            raise OSError("no stub is wanted")
        return found(object)

    class Docstring:
        """Stands for a template; one of a docstring gives its source as it is."""

        def __init__(self, source: str) -> None:
            self._source = source

        def render(self, **values: Any) -> str:
            return self._source if values.keys() == {"component"} else template(self._source).render(values)

    inspect.getfile, jinja2.Template = getfile, Docstring  # type: ignore[assignment, misc]
    try:
        yield
    finally:
        inspect.getfile, jinja2.Template = found, template  # type: ignore[misc]


class Later(ModuleType):
    """In the place of pandas, which is imported when something of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get("pandas") is self:
            sys.modules.pop("pandas", None)  # another thread may be as far
        import pandas  # type: ignore[import-untyped]

        return getattr(pandas, name)


@contextmanager
def pandas_later() -> Iterator[None]:
    """While the block imports Gradio, whose file of caches imports pandas for a comparison, a stand-in stands there."""
    stands = None if "pandas" in sys.modules else sys.modules.setdefault("pandas", Later("pandas"))
    if stands is not None:
        stands.__spec__ = ModuleSpec("pandas", None)  # who only asks whether it is there finds it
    try:
        yield
    finally:
        if sys.modules.get("pandas") is stands:
            del sys.modules["pandas"]
