"""Triton's interpreter, where it runs (``TRITON_INTERPRET=1``), without half of its time: what changes no result."""

from __future__ import annotations

import os
import sys
from functools import cache
from types import ModuleType
from typing import Any

if os.environ.get("TRITON_INTERPRET") == "1":
    import triton.language as tl
    from triton.runtime import interpreter

    replace, numbers = interpreter._patch_lang, cache(interpreter._get_np_dtype)

    @cache
    def places(function: Any) -> list[Any]:
        """Where a function finds the language."""
        return [value for value in function.__globals__.values() if value is tl or value is tl.core]

    def replace_once(function: Any) -> Any:
        """A launch replaces the language's functions; each call within it looks through all of them again, and finds
        none left to replace."""
        missing = any(tl.core.is_builtin(place.load) for place in places(function))
        return replace(function) if missing else interpreter._LangPatchScope()

    def numpy_type(of: Any) -> Any:
        """The original fills a table of all types for each that is asked for."""
        return numbers(tl.uint64 if isinstance(of.scalar, tl.pointer_type) else of.scalar)

    interpreter._patch_lang, interpreter._get_np_dtype = replace_once, numpy_type
    # It computes each sum of integers in 64 bits, too, to see whether one overflows; and says so only under ``debug``.
    interpreter.interpreter_builder.options = interpreter.InterpreterOptions(sanitize_overflow=False)
    # The rule of ``core.bench.kernels`` is all that is asked of it here; to write reports it would import transformers.
    report: Any = ModuleType("core.bench.report")
    report.machine_facts = report.markdown = None
    sys.modules[report.__name__] = report
