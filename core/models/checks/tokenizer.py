"""Refuses a tokenizer.json that would make gigabytes of a short text.

28 Replace steps that each double a text make a word 268 million letters long; an added token may be megabytes; padding
to a fixed length fills every row. Real tokenizers keep the length, and their longest token has some hundred letters.

Parsing takes half a second for the largest, so it is done where a tokenizer is loaded, not where models are listed. The
format is the tokenizers library's serialisation.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from core.contract.errors import ModelError
from core.models.checks.files import read_json

MOST_GROWTH = 64
MOST_LETTERS = 16_384
"""In one token."""
MOST_PADDED = 1 << 17
MOST_ADDED_IDS = 1_024
"""Tokens that a template of the post-processor puts around each row."""


def check_growth(folder: Path) -> None:
    """Refuses a tokenizer.json whose steps make a text absurdly longer; a folder without one is accepted.

    Raises:
        ModelError: the first of them, in one line.
    """
    path = folder / "tokenizer.json"
    if path.is_file():
        status = path.stat()
        _check(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=16)
def _check(path: Path, _size: int, _time: int) -> None:
    said = read_json(path)
    for step in ("normalizer", "pre_tokenizer", "decoder"):
        growth = 1.0
        for part in _parts(said.get(step)):
            growth *= _growth(part)
            if growth > MOST_GROWTH:
                raise _absurd(f"a {step} that makes a text at most {MOST_GROWTH} times as long", "more", path)
    if (longest := max(map(len, _tokens(said)), default=0)) > MOST_LETTERS:
        raise _absurd(f"tokens of at most {MOST_LETTERS:,} letters", f"one of {longest:,}", path)
    padded = _of(_of(said, "padding"), "strategy").get("Fixed", 0)
    if not isinstance(padded, int) or padded > MOST_PADDED:
        raise _absurd(f"padding to at most {MOST_PADDED:,} tokens", "more", path)
    added = sum(
        len(one["ids"])
        for part in _parts(said.get("post_processor"))
        for one in _of(part, "special_tokens").values()
        if isinstance(one, dict) and isinstance(one.get("ids"), list)
    )
    if added > MOST_ADDED_IDS:
        raise _absurd(f"at most {MOST_ADDED_IDS:,} tokens around each row", f"{added:,}", path)


def _parts(step: Any) -> Iterator[Mapping[str, Any]]:
    """A step and all steps nested in it."""
    waiting = [step]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield part
            for inner in part.values():
                waiting.extend(inner if isinstance(inner, list) else ())


def _growth(part: Mapping[str, Any]) -> float:
    """How many times as long a Replace may make a text; other kinds count as 1."""
    if part.get("type") != "Replace":
        return 1.0
    content, pattern = part.get("content"), _of(part, "pattern")
    written = len(content) if isinstance(content, str) else 0
    literal = pattern.get("String")
    if isinstance(literal, str) and literal:
        return max(1.0, written / len(literal))
    return 1.0 + written  # an expression may match nothing at all, before every letter


def _tokens(said: Mapping[str, Any]) -> Iterator[str]:
    added = said.get("added_tokens")
    for one in added if isinstance(added, list) else ():
        content = one.get("content") if isinstance(one, dict) else None
        if isinstance(content, str):
            yield content
    vocabulary = _of(said, "model").get("vocab")
    if isinstance(vocabulary, dict):
        yield from vocabulary
    elif isinstance(vocabulary, list):  # Unigram: pairs of a token and its score
        yield from (str(one[0]) for one in vocabulary if isinstance(one, list) and one)


def _of(value: Any, key: str) -> Mapping[str, Any]:
    inner = value.get(key) if isinstance(value, dict) else None
    return inner if isinstance(inner, dict) else {}


def _absurd(expected: str, seen: str, path: Path) -> ModelError:
    return ModelError("model.absurd/tokenizer", expected=expected, path=path, found=seen)
