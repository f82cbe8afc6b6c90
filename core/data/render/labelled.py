"""Rows with labels as a classifier reads them: a text, or a pair of texts, as the tokenizer itself writes it, with its
own tokens at the ends and no chat template."""

from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from typing import Any

from core.contract.data import Example, PreviewRow, Span
from core.data.tokens.table import Encoded

_BATCH = 256
SHOWN_TOKENS = 5_000


def encode_labelled(tokenizer: Any, examples: Iterable[Example]) -> Iterator[Encoded]:
    """Every row in order, uncut, as ``tokenizer(text, second text)`` encodes it; its labels are as written.

    Where a tokenizer puts nothing between two texts, a blank line stands there.
    """
    backend = tokenizer.backend_tokenizer
    parts = tokenizer.num_special_tokens_to_add(pair=True) > tokenizer.num_special_tokens_to_add(pair=False)
    special = frozenset(tokenizer.all_special_ids)
    rows = iter(examples)
    while group := list(islice(rows, _BATCH)):
        backend.no_truncation()
        backend.no_padding()
        texts = [one.texts if parts and one.second else "\n\n".join(one.texts) for one in group]
        for example, encoding in zip(group, backend.encode_batch(texts, add_special_tokens=True), strict=True):
            ids = tuple(encoding.ids)
            ended = len(ids) > 1 and ids[-1] in special
            yield Encoded(example.row, "", ids, (), None, ended=ended, labels=example.labels, classed=True)


def shown_labelled(tokenizer: Any, encoded: Encoded, max_length: int) -> PreviewRow:
    """An encoded row as it is shown: the tokens decoded, as the model sees them."""
    special = frozenset(tokenizer.all_special_ids)
    ((row, _, stop),) = encoded.cut(max_length)
    tokens = [(token, "special" if token in special else "read") for token in row.input_ids[:SHOWN_TOKENS]]
    tokens += [(token, "cut") for token in encoded.ids[stop:][: max(0, SHOWN_TOKENS - stop)]]
    spans = []
    for kind, group in groupby(tokens, key=lambda one: one[1]):
        ids = [token for token, _ in group]
        spans.append(Span.model_validate({"text": tokenizer.decode(ids), "kind": kind, "tokens": len(ids)}))
    return PreviewRow(
        row=encoded.row, labels=encoded.labels, spans=tuple(spans), tokens=len(encoded.ids), trained_tokens=0,
        cut_tokens=len(encoded.ids) - stop,
    )  # fmt: skip
