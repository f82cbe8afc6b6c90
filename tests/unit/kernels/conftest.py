"""Triton's interpreter, where it runs (``TRITON_INTERPRET=1``), without half of its time: what changes no result."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

if os.environ.get("TRITON_INTERPRET") == "1":
    import triton.language as tl
    from triton.runtime import interpreter

    replace, numbers = interpreter._patch_lang, cache(interpreter._get_np_dtype)

    def replace_once(function: Any) -> Any:
        """A launch replaces the language's functions; each call within it looks through all of them again, and finds
        none left to replace."""
        missing = any(tl.core.is_builtin(place.load) for place in (tl, tl.core))
        return replace(function) if missing else interpreter._LangPatchScope()

    def numpy_type(of: Any) -> Any:
        """The original fills a table of all types for each that is asked for."""
        return numbers(tl.uint64 if isinstance(of.scalar, tl.pointer_type) else of.scalar)

    interpreter._patch_lang, interpreter._get_np_dtype = replace_once, numpy_type
    # It computes each sum of integers in 64 bits, too, to see whether one overflows; and says so only under ``debug``.
    interpreter.interpreter_builder.options = interpreter.InterpreterOptions(sanitize_overflow=False)
