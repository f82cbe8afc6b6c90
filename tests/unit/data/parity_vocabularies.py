"""Real vocabularies for the parity tests; a sentencepiece model is read here, since its library is none of ours.

The file is a protocol buffer: field 1 repeated, each a piece with its text (1), score (2) and kind (3). A model of the
kind BPE merges the pair of the highest score, which gives the merges in order.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["VOCABULARIES", "sentencepiece_tokenizer"]

VOCABULARIES = {
    "gpt-2": "gpt-2",
    "phi-3": "phi-3",
    "qwen2": "qwen2",
    "mistral v1": "mistral/tokenizer.model.v1",
    "mistral v3": "mistral/mistral_instruct_tokenizer_240323.model.v3",
}


def _number(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    place = 0
    while place < len(data):
        key, place = _number(data, place)
        kind = key & 7
        if kind == 0:
            value, place = _number(data, place)
            yield key >> 3, value
        elif kind == 2:
            size, place = _number(data, place)
            yield key >> 3, data[place : place + size]
            place += size
        else:
            size = 4 if kind == 5 else 8
            yield key >> 3, data[place : place + size]
            place += size


def sentencepiece_tokenizer(path: Path) -> Any:
    """A fast tokenizer with the pieces of a sentencepiece BPE model; it begins each text with its BOS."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors
    from transformers import PreTrainedTokenizerFast

    pieces = [dict(_fields(piece)) for field, piece in _fields(path.read_bytes()) if field == 1]
    names = [piece[1].decode() for piece in pieces]
    scores = {name: struct.unpack("<f", piece.get(2, b"\0" * 4))[0] for name, piece in zip(names, pieces, strict=True)}
    places = {name: number for number, name in enumerate(names)}
    merges = []
    for name in names:
        splits = [(name[:cut], name[cut:]) for cut in range(1, len(name))]
        known = [(left, right) for left, right in splits if left in places and right in places]
        merges += [(scores[name], pair) for pair in sorted(known, key=lambda pair: (places[pair[0]], places[pair[1]]))]
    merges.sort(key=lambda merge: -merge[0])
    inner = Tokenizer(
        models.BPE(places, [pair for _, pair in merges], unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    inner.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    inner.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    inner.add_special_tokens([AddedToken(name, special=True) for name in ("<unk>", "<s>", "</s>")])
    inner.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", places["<s>"])])
    return PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
