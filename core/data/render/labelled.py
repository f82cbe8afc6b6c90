"""Rows with labels as a classifier reads them: a text, or a pair of texts, as the tokenizer itself writes it, with its
own tokens at the ends and no chat template."""

from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from typing import Any

from core.contract.data import Example, Message, PreviewRow, Span
from core.contract.errors import DataError
from core.data.tokens.table import Encoded

_BATCH = 256
SHOWN_TOKENS = 5_000
_CHARACTERS_A_TOKEN = 64
"""More than any text has on average; tokenising a megabyte takes minutes."""


def encode_labelled(tokenizer: Any, examples: Iterable[Example]) -> Iterator[Encoded]:
    """Every row in order, uncut, as ``tokenizer(text, second text)`` encodes it; its labels are as written.

    Where a tokenizer puts nothing between two texts, a blank line stands there.
    """
    backend = tokenizer.backend_tokenizer
    parts = tokenizer.num_special_tokens_to_add(pair=True) > tokenizer.num_special_tokens_to_add(pair=False)
    rows = iter(examples)
    while group := list(islice(rows, _BATCH)):
        backend.no_truncation()
        backend.no_padding()
        texts = [one.texts if parts and one.second else "\n\n".join(one.texts) for one in group]
        for example, encoding in zip(group, backend.encode_batch(texts, add_special_tokens=True), strict=True):
            ids, ranges = tuple(encoding.ids), _ranges(encoding.sequence_ids)
            own: dict[str, Any] = {
                "labels": example.labels,
                "texts": ranges,
                "keeps_end": tokenizer.truncation_side == "left",
            }
            yield Encoded(example.row, "", ids, (), None, classed=True, **own)


def _ranges(owners: list[int | None]) -> tuple[tuple[int, int], ...]:
    """Where each text begins and ends, of the text that each token is of; None: the tokenizer's own."""
    found = ((owners.index(text), len(owners) - owners[::-1].index(text)) for text in (0, 1) if text in owners)
    return tuple(sorted(found))


def labelled_ids(tokenizer: Any, texts: tuple[str, str], max_length: int) -> tuple[int, ...]:
    """The tokens of a text without a label, cut as rows are; the second text is empty where there is none.

    Raises:
        DataError: there is no text, or the tokenizer leaves nothing of it.
    """
    text, second = (one[: _CHARACTERS_A_TOKEN * max_length] if one.strip() else "" for one in texts)
    if not text:
        raise DataError("question.empty")
    asked = f"{text}\n\n{second}" if second else text
    turns = (Message(role="user", content=asked), Message(role="assistant", content=""))
    (encoded,) = encode_labelled(tokenizer, [Example(row=1, messages=turns, label="?", second=second)])
    ((row, _, _),) = encoded.cut(max_length)
    if not row.input_ids:
        raise DataError("question.empty")
    return row.input_ids


def shown_labelled(tokenizer: Any, encoded: Encoded, max_length: int) -> PreviewRow:
    """An encoded row as it is shown: the tokens decoded, as the model sees them."""
    special = frozenset(tokenizer.all_special_ids)
    kept = encoded.kept(max_length)
    left = sum(stop - start for start, stop in kept)
    spare = max(0, SHOWN_TOKENS - left)
    tokens: list[tuple[int, str]] = []
    for (start, stop), behind in zip(kept, (*(start for start, _ in kept[1:]), len(encoded.ids)), strict=True):
        tokens += [(token, "special" if token in special else "read") for token in encoded.ids[start:stop]]
        cut = encoded.ids[stop:behind][:spare]
        spare -= len(cut)
        tokens += [(token, "cut") for token in cut]
    spans = []
    for kind, group in groupby(tokens[:SHOWN_TOKENS], key=lambda one: one[1]):
        ids = [token for token, _ in group]
        spans.append(Span.model_validate({"text": tokenizer.decode(ids), "kind": kind, "tokens": len(ids)}))
    return PreviewRow(
        row=encoded.row, labels=encoded.labels, spans=tuple(spans), tokens=len(encoded.ids), trained_tokens=0,
        cut_tokens=len(encoded.ids) - left,
    )  # fmt: skip
