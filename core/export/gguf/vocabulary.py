"""A tokenizer's facts as GGUF holds them: its kind, every token with its score or the merges, what is special, and what
is added at the ends of a text.

bytes         byte-level BPE (GPT-2, Llama 3, Qwen): tokens, merges, and the rule that cuts words (``pretokenizers``)
sentencepiece BPE over blanks written as ▁, with a token for each byte (Llama 2, Mistral, Gemma, Phi-3): llama.cpp joins
              the pair of the highest score first, so a token's score is minus the place of its first merge
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.contract.errors import ModelError
from core.export.gguf.pretokenizers import pretokenizer_of, words_of

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
"""``tokenizer.ggml.token_type``."""
_NO_MERGE = -1e9
"""The score of a token that no merge makes: joined last."""
_PREFIX = "▁"
_UNSTRIPPED = ("<unk>", "<s>", "<|endoftext|>")
"""Special tokens behind which llama.cpp keeps blanks where it drops them behind the others (Phi-3)."""


@dataclass(frozen=True)
class Vocabulary:
    """``model``: llama.cpp's name of the kind; ``rule``: of how words are cut; ``tokens``, ``types`` and ``scores`` by
    id; ``special``: ids by their names in the metadata; ``begins``, ``ends``: whether a start or end token is added.

    ``prefix``: whether a blank is put before words that follow a special token. ``strips``: whether blanks behind
    special tokens are dropped. ``notes``: what texts it reads otherwise than transformers does.
    """

    model: str
    rule: str
    tokens: tuple[str, ...]
    types: tuple[int, ...]
    special: Mapping[str, int]
    begins: bool
    ends: bool
    scores: tuple[float, ...] = ()
    merges: tuple[str, ...] = ()
    prefix: bool | None = None
    strips: bool = False
    notes: tuple[str, ...] = ()


def vocabulary_of(tokenizer: Any, rows: int, ends: tuple[int, ...], templated: bool) -> Vocabulary:
    """The facts of a fast tokenizer of transformers.

    Args:
        rows: of the embedding: ids without a token become padding.
        ends: at which an answer ends, the template's own first.
        templated: whether it is used with a chat template, whose text begins with a special token.

    Raises:
        ModelError: GGUF cannot express it (``gguf.tokenizer``).
    """
    held = json.loads(tokenizer.backend_tokenizer.to_str())
    model, known = held["model"], tokenizer.get_vocab()
    if model["type"] != "BPE" or (many := max(known.values()) + 1) > rows:
        found = f"{many:,} tokens for {rows:,} rows" if model["type"] == "BPE" else f"the kind {model['type']}"
        raise _refused(found)
    pieces = bool(model.get("byte_fallback"))
    named = {number: token for token, number in known.items()}
    types = _types(tokenizer, named, rows, model.get("unk_token"), pieces)
    tokens = tuple(_text(named.get(number), types[number], number) for number in range(rows))
    if len(set(tokens)) < rows:
        twice = next(token for number, token in enumerate(tokens) if token in tokens[:number])
        raise _refused(f"two tokens that are both written {twice!r}")
    bare, whole = (tokenizer("a", add_special_tokens=special).input_ids for special in (False, True))
    special = {
        "bos": tokenizer.bos_token_id,
        "eos": tokenizer.eos_token_id,
        "unknown": tokenizer.unk_token_id,
        "padding": tokenizer.pad_token_id,
        "eot": next((end for end in ends if end != tokenizer.eos_token_id), None),
    }
    facts: dict[str, Any] = {
        "tokens": tokens,
        "types": types,
        "special": {name: number for name, number in special.items() if number is not None},
        "begins": len(whole) > len(bare) and whole[0] == tokenizer.bos_token_id,
        "ends": len(whole) > len(bare) and whole[-1] == tokenizer.eos_token_id,
    }
    return Vocabulary(**facts, **(_sentencepiece(held, tokens, templated) if pieces else _bytes(held)))


def _bytes(held: dict[str, Any]) -> dict[str, Any]:
    rule = pretokenizer_of(held)
    if rule is None:
        raise _refused(f"words cut by {words_of(held)}")
    merges = (" ".join(pair) if isinstance(pair, list) else pair for pair in held["model"]["merges"])
    return {"model": "gpt2", "rule": rule.name, "merges": tuple(merges)}


def _sentencepiece(held: dict[str, Any], tokens: tuple[str, ...], templated: bool) -> dict[str, Any]:
    places: dict[str, int] = {}
    for place, pair in enumerate(held["model"]["merges"]):
        made = "".join(pair) if isinstance(pair, list) else pair.replace(" ", "", 1)
        places.setdefault(made, place)
    scores = tuple(-float(places[token]) if token in places else _NO_MERGE for token in tokens)
    prefix, first = _prefix(held)
    notes: tuple[str, ...] = ()
    if first and templated:  # llama.cpp writes it behind every special token, or nowhere: chats begin with one
        prefix, notes = False, ("a text outside a chat is read without the blank that transformers puts before it",)
    strips = any(token["rstrip"] for token in held["added_tokens"] if token["content"] not in _UNSTRIPPED)
    if strips and not {*_UNSTRIPPED, "</s>"} <= set(tokens):  # llama.cpp looks for each of them
        strips, notes = False, (*notes, "blanks behind special tokens are kept, where transformers drops them")
    return {
        "model": "llama", "rule": "default", "scores": scores, "prefix": prefix, "strips": strips, "notes": notes,
    }  # fmt: skip


def _prefix(held: dict[str, Any]) -> tuple[bool, bool]:
    """Whether a blank is put before the text, and whether only before its first words."""
    normal = held.get("normalizer") or {}
    steps = normal.get("normalizers", [normal])
    if any(step.get("type") == "Prepend" and step["prepend"] == _PREFIX for step in steps):
        return True, False
    before = held.get("pre_tokenizer") or {}
    scheme = next((step.get("prepend_scheme") for step in before.get("pretokenizers", [before])), None)
    return scheme in ("first", "always"), scheme == "first"


def _types(
    tokenizer: Any, named: Mapping[int, str], rows: int, unknown: str | None, bytes_apart: bool
) -> tuple[int, ...]:
    added = tokenizer.added_tokens_decoder
    types = []
    for number in range(rows):
        token = named.get(number)
        if token is None:
            types.append(UNUSED)
        elif token == unknown and bytes_apart:
            types.append(UNKNOWN)
        elif number in added:
            # Some that are not marked as special are by their names: Phi-3's ``</s>`` is none to its tokenizer.
            looks_special = token in ("</s>",) or (token.startswith("<|") and token.endswith("|>"))
            types.append(CONTROL if added[number].special or looks_special else USER_DEFINED)
        else:
            types.append(BYTE if bytes_apart and len(token) == 6 and token.startswith("<0x") else NORMAL)
    return tuple(types)


def _text(token: str | None, kind: int, number: int) -> str:
    if token is None:
        return f"[PAD{number}]"
    # Added tokens are looked for in the text before blanks are written as ▁.
    return token.replace(_PREFIX, " ") if kind == USER_DEFINED else token


def _refused(found: str) -> ModelError:
    return ModelError("gguf.tokenizer", found=found)
