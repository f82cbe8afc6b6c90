"""What the preview points out: the words in which two answers differ, marks, and labels."""

import time
from typing import Any

import pytest
from whole_rows import preview_rows

from core.contract.config import DataChoice
from core.contract.data import Example, Message
from core.data.render.differences import differing
from core.data.render.preview import encoded_sides, shown_rows
from core.data.render.renderer import renderer

ASKED = (Message(role="user", content="Combien ?"),)


def test_what_differs_between_the_answers_of_a_pair_is_told(tokenizer: Any) -> None:
    chosen, rejected = "Il y a 4 pommes, je crois 🙂.", "Il y a 5 pommes, je crois bien 🙂."
    example = Example(row=1, messages=ASKED, chosen=chosen, rejected=rejected)
    sides = preview_rows(renderer(tokenizer, DataChoice()), example, 1000)
    assert [[span.text.strip() for span in side.spans if span.differs] for side in sides] == [["4"], ["5", "bien"]]
    for side, answer in zip(sides, (chosen, rejected), strict=True):
        assert answer in "".join(span.text for span in side.spans)
        assert sum(span.tokens for span in side.spans) == side.tokens


@pytest.mark.parametrize(
    ("one", "other", "left"),
    [
        ("", "", []), ("same", "Same ", []), ("red cars here", "blue cars here", ["red"]), ("yes", "no", []),
        ("a b c d x e f g", "a b c d y e f g", ["x"]), ("go on now, and then", "go on now", [", and then"]),
        ("word " * 3_000, "word " * 3_001, []),
    ],
)  # fmt: skip
def test_differing_words(one: str, other: str, left: list[str]) -> None:
    assert [one[start:stop] for start, stop in differing(one, other)[0]] == left


def test_differing_words_of_long_answers_are_found_in_bounded_time() -> None:
    one, other = (" ".join(f"w{number % every}" for number in range(50_000)) for every in (7, 11))
    begun = time.process_time()
    differing(one, other)
    assert time.process_time() - begun < 2


def test_an_answer_marked_bad_is_avoided(tokenizer: Any) -> None:
    said = [("user", "Hi"), ("assistant", "One"), ("user", "And?"), ("assistant", "Two")]
    turns = tuple(Message(role=role, content=content) for role, content in said)
    using = renderer(tokenizer, DataChoice())
    example = Example(row=1, mark=False, label="👎", messages=turns)
    (row,) = shown_rows(using, encoded_sides(using, example, "marks"), 1000)
    assert row.mark is False
    assert [span.text for span in row.spans if span.kind in ("avoided", "trained")] == ["Two<|im_end|>"]
    assert {span.kind for span in row.spans} >= {"avoided", "read"}
