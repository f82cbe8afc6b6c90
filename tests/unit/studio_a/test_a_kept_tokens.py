"""The doctor's list of tokenised rows."""

from __future__ import annotations

import time

from core.data.tokens.cache import Cached
from studio.pages.doctor import page as doctor


def test_tokenised_rows_are_listed_and_can_be_thrown_away() -> None:
    assert "Nothing is kept." in doctor.cache_view(())
    one = Cached("k", "<rows>.jsonl", "qwen", "answers", 1234, 56789, 3_000_000, time.time(), whole=True)
    drawn = doctor.cache_view((one,))
    for words in ("&lt;rows&gt;.jsonl", "qwen", "1,234", "56,789", "3.0 MB", "Clear all"):
        assert words in drawn
