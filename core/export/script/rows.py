"""A run's rows as JSON objects that people read: a row is some pieces of text, which the script tokenises as one.

A token belongs to the piece that it begins in. Where the tokenizer would make other tokens of the text than the run
learned from (the rest of a long text, half a character), a row's pieces are its token ids instead.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate, groupby, pairwise
from math import isnan
from typing import Any

from core.train.step.rows import IGNORED, LabelRows, MarkedRows, PairRows, Rows, TextRows

Pieces = list[list[int]]
Written = list[str] | Pieces
Row = dict[str, Any]
Told = tuple[Row, list[Pieces]]
"""A row as it is written, and the pieces that it is split into, call by call."""


def split(tokenizer: Any, texts: Sequence[str]) -> Pieces:
    """The token ids of each text, of one tokenisation of all."""
    read = tokenizer("".join(texts), add_special_tokens=False, return_offsets_mapping=True)
    ends, at, ids = list(accumulate(map(len, texts))), 0, [list[int]() for _ in texts]
    for token, (start, _) in zip(read["input_ids"], read["offset_mapping"], strict=True):
        at = max(at, start)  # tokens without characters of their own begin at 0
        ids[min(bisect_right(ends, at), len(texts) - 1)].append(token)
    return ids


def written(tokenizer: Any, *pieces: Sequence[int]) -> Written:
    """The pieces as texts that ``split`` makes them of again, or as they are where there are none."""
    ids = [list(map(int, piece)) for piece in pieces]
    begun = ([token for piece in ids[:number] for token in piece] for number in range(1, len(ids) + 1))
    ends = [tokenizer.decode(read, skip_special_tokens=False) for read in begun]
    texts = [ends[0], *(end[len(begin) :] for begin, end in pairwise(ends))]
    whole = all(end.startswith(begin) for begin, end in pairwise(ends))
    return texts if whole and split(tokenizer, texts) == ids else ids


def _text(rows: TextRows, tokenizer: Any, row: int) -> Told:
    ids, labels = rows.ids[row].tolist(), rows.labels[row].tolist()
    parts: Pieces = []
    for learned, run in groupby(range(len(ids)), key=lambda at: labels[at] != IGNORED):
        parts += [[], []] if learned and not parts else [[]]
        parts[-1] = [ids[at] for at in run]
    return {"parts": written(tokenizer, *parts)}, [parts]


def _pair(rows: PairRows, tokenizer: Any, row: int) -> Told:
    prompt, chosen, rejected = (part[row].tolist() for part in (rows.prompts, rows.chosen, rows.rejected))
    good, bad = written(tokenizer, prompt, chosen), written(tokenizer, prompt, rejected)
    if good[0] != bad[0]:
        good, bad = [prompt, chosen], [prompt, rejected]
    told: Row = {"prompt": good[0], "chosen": good[1], "rejected": bad[1]}
    if not isnan(margin := rows.margins.values([row])[0]):
        told["margin"] = margin
    return told, [[prompt, chosen], [prompt, rejected]]


def _marked(rows: MarkedRows, tokenizer: Any, row: int) -> Told:
    prompt, answer = rows.prompts[row].tolist(), rows.answers[row].tolist()
    first, second = written(tokenizer, prompt, answer)
    return {"prompt": first, "completion": second, "label": rows.good(row)}, [[prompt, answer]]


def _labelled(rows: LabelRows, tokenizer: Any, row: int) -> Told:
    ids = rows.ids[row].tolist()
    (text,) = written(tokenizer, ids)
    names = [rows.outputs.names[place] for place in rows.classes.values(row)]
    several, numbers = rows.outputs.problem == "multi_label_classification", rows.outputs.problem == "regression"
    label = rows.numbers.values([row])[0] if numbers else names if several else names[0]
    return {"text": text, "label": label}, [[ids]]


KINDS: dict[type[Rows], Callable[[Any, Any, int], Told]] = {
    TextRows: _text,
    PairRows: _pair,
    MarkedRows: _marked,
    LabelRows: _labelled,
}
"""From rows, tokenizer and a row's number."""
