"""A run's rows as JSON objects that people read: a row is some pieces of text, which the script tokenises as one.

A token belongs to the piece that it begins in. Where the tokenizer would make other tokens of the text than the run
learned from (the rest of a long text, half a character), a row's pieces are its token ids instead.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate, groupby
from math import isnan
from typing import Any

from core.train.step.rows import IGNORED, LabelRows, MarkedRows, PairRows, Rows, TextRows

Pieces = list[list[int]]
Written = list[str] | Pieces
Row = dict[str, Any]


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
    ends = [tokenizer.decode(sum(ids[:number], []), skip_special_tokens=False) for number in range(1, len(ids) + 1)]
    texts = [ends[0], *(end[len(begin) :] for begin, end in zip(ends, ends[1:], strict=False))]
    whole = all(end.startswith(begin) for begin, end in zip(ends, ends[1:], strict=False))
    return texts if whole and split(tokenizer, texts) == ids else ids


def _text(rows: TextRows, tokenizer: Any, row: int) -> tuple[Row, Row]:
    ids, labels = rows.ids[row].tolist(), rows.labels[row].tolist()
    labels[0] = IGNORED  # nothing predicts it
    parts: Pieces = []
    for learned, run in groupby(range(len(ids)), key=lambda at: labels[at] != IGNORED):
        parts += [[], []] if learned and not parts else [[]]
        parts[-1] = [ids[at] for at in run]
    return {"parts": written(tokenizer, *parts)}, {"input_ids": ids, "labels": labels}


def _pair(rows: PairRows, tokenizer: Any, row: int) -> tuple[Row, Row]:
    prompt, chosen, rejected = (part[row].tolist() for part in (rows.prompts, rows.chosen, rows.rejected))
    good, bad = written(tokenizer, prompt, chosen), written(tokenizer, prompt, rejected)
    if good[0] != bad[0]:
        good, bad = [prompt, chosen], [prompt, rejected]
    told: Row = {"prompt": good[0], "chosen": good[1], "rejected": bad[1]}
    if not isnan(margin := rows.margins.values([row])[0]):
        told["margin"] = margin
    return told, {"prompt_ids": prompt, "chosen_ids": chosen, "rejected_ids": rejected}


def _marked(rows: MarkedRows, tokenizer: Any, row: int) -> tuple[Row, Row]:
    prompt, answer = rows.prompts[row].tolist(), rows.answers[row].tolist()
    first, second = written(tokenizer, prompt, answer)
    told = {"prompt": first, "completion": second, "label": rows.good(row)}
    return told, {"prompt_ids": prompt, "completion_ids": answer}


def _labelled(rows: LabelRows, tokenizer: Any, row: int) -> tuple[Row, Row]:
    ids = rows.ids[row].tolist()
    (text,) = written(tokenizer, ids)
    names = [rows.outputs.names[place] for place in rows.classes.values(row)]
    several, numbers = rows.outputs.problem == "multi_label_classification", rows.outputs.problem == "regression"
    label = rows.numbers.values([row])[0] if numbers else names if several else names[0]
    return {"text": text, "label": label}, {"input_ids": ids}


KINDS: dict[type[Rows], Callable[[Any, Any, int], tuple[Row, Row]]] = {
    TextRows: _text,
    PairRows: _pair,
    MarkedRows: _marked,
    LabelRows: _labelled,
}
"""From rows, tokenizer and a row's number to what is written of it, and to the tokens that must come of that."""
