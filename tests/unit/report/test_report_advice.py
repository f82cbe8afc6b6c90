"""Advice: each rule by a report that calls for it, and silence where nothing does."""

from __future__ import annotations

from typing import Any

import pytest

from core.report.advice import MOST, Course, advice
from core.report.schema import (
    Answers,
    AnswersPart,
    Figure,
    Forgetting,
    Group,
    HeldOut,
    Matrix,
    Memorising,
    Moved,
    Recited,
    Report,
)

FALLING = Course(((0, 2.0), (50, 1.5), (100, 1.2)), 2.0)
DONE = Course(((0, 2.0), (50, 1.2), (100, 1.199)), 2.0)
PAST = Course(((0, 2.0), (30, 1.2), (60, 1.3), (100, 1.5)), 3.0)


def figure(value: float, half: float = 0.05, of: int = 50) -> Figure:
    return Figure(value=value, low=value - half, high=value + half, of=of)


ACCURACY = {"accuracy_before": Figure(value=0.5, of=50), "accuracy_after": Figure(value=0.9, of=50)}


def group(name: str, fall: float, by: Any = "language", low_loss: float = 2.0) -> Group:
    change: Any = "better" if fall > 0.05 else "same" if fall > -0.05 else "worse"
    return Group(by=by, name=name, rows=10, before=figure(low_loss), after=figure(low_loss - fall),
                 difference=figure(-fall), change=change)  # fmt: skip


def held_out(fall: float = 0.8, rows: int = 50, *groups: Group) -> HeldOut:
    change: Any = "better" if fall > 0.05 else "same" if fall > -0.05 else "worse"
    return HeldOut(
        unit="nats a token", rows=rows, tokens=rows * 10, before=figure(2.0), after=figure(2.0 - fall),
        difference=figure(-fall), change=change, groups=groups,
    )  # fmt: skip


def general(kl: float, rise: float, before: float = 2.5) -> tuple[Forgetting, ...]:
    return (
        Forgetting(
            name="general", texts=40, tokens=4000, kl=figure(kl, 0.01), before=figure(before),
            after=figure(before + rise), difference=figure(rise, 0.02), change="worse" if rise > 0.02 else "same",
        ),
    )  # fmt: skip


def matrices(used: int, rank: int) -> Moved:
    one = Matrix(module="a.layers.0.q_proj", layer=0, projection="q_proj", norm=1.0, rank=rank, effective_rank=3.0,
                 directions=used, singular=(1.0,) * rank)  # fmt: skip
    return Moved(norm=1.0, matrices=(one,))


def by_heart(gap: float, recited: int = 0, before: int = 0) -> Memorising:
    text = "word " * recited
    rows = (Recited(row=3, tokens=recited, answer_tokens=60, before=before, text=text),) if recited else ()
    return Memorising(trained=figure(0.5), held_out=figure(0.5 + gap), gap=figure(gap), recited=rows)


def said_right(start: str) -> AnswersPart:
    """Held-out answers that begin as the reference does; what is formulaic is learned, not known by heart."""
    right = start * 20
    return AnswersPart(rows=(Answers(row=1, prompt="?", reference=right, after=right[: 2 * len(start)] + "other"),))


@pytest.mark.parametrize(
    ("parts", "course", "keys"),
    [
        ({"held_out": held_out()}, DONE, []),
        ({}, Course(), []),
        ({"held_out": held_out(0.0)}, DONE, ["learned_nothing"]),
        ({"held_out": held_out(-0.4)}, DONE, ["learned_wrong"]),
        ({"held_out": held_out(-0.4).model_copy(update=ACCURACY)}, DONE, []),
        (
            {"held_out": held_out(-0.4, 50, group("good answers", -0.4, "label"), group("bad answers", -2.0, "label"))},
            DONE,
            [],
        ),
        ({"held_out": held_out(0.0), "memorising": by_heart(0.4)}, FALLING, ["memorised"]),
        ({"held_out": held_out(0.0), "forgetting": general(0.4, 0.3)}, DONE, ["forgot"]),
        ({"held_out": held_out(0.0)}, PAST, ["fewer_epochs"]),
        (
            {"held_out": held_out(), "forgetting": general(0.4, 0.3), "moved": matrices(15, 16)},
            FALLING,
            ["forgot", "more_epochs"],
        ),
        (
            {"held_out": held_out(), "memorising": by_heart(0.06, recited=40), "answers": said_right("a b c " * 9)},
            DONE,
            [],
        ),
        (
            {"held_out": held_out(), "memorising": by_heart(0.06, recited=40), "answers": said_right("a b")},
            DONE,
            ["memorised"],
        ),
        ({"held_out": held_out(0.0, 6)}, DONE, ["few_rows"]),
        ({"held_out": held_out(0.8, 6)}, DONE, []),
        ({"held_out": held_out()}, FALLING, ["more_epochs"]),
        ({"held_out": held_out()}, PAST, ["fewer_epochs"]),
        ({"held_out": held_out(), "memorising": by_heart(0.4)}, FALLING, ["memorised"]),
        ({"held_out": held_out(), "memorising": by_heart(0.06, recited=40)}, DONE, ["memorised"]),
        ({"held_out": held_out(), "memorising": by_heart(0.06, recited=40, before=38)}, DONE, []),
        ({"held_out": held_out(), "forgetting": general(0.4, 0.3)}, DONE, ["forgot"]),
        ({"held_out": held_out(), "forgetting": general(0.4, 0.0)}, DONE, []),
        ({"held_out": held_out(), "forgetting": general(0.4, 0.3, before=9.0)}, DONE, []),
        ({"held_out": held_out(0.8, 50, group("German", 0.1), group("English", 0.9))}, DONE, ["more_of_a_kind"]),
        ({"held_out": held_out(0.8, 50, group("short", 0.1, low_loss=0.4), group("long", 0.9))}, DONE, []),
        ({"held_out": held_out(0.8, 50, group("German", 0.7), group("English", 0.9))}, DONE, []),
        ({"held_out": held_out(), "moved": matrices(15, 16)}, FALLING, ["more_epochs", "rank"]),
        ({"held_out": held_out(), "moved": matrices(15, 16)}, DONE, []),
        ({"held_out": held_out(), "moved": matrices(3, 64)}, DONE, ["rank"]),
    ],
)
def test_what_is_advised(parts: dict[str, Any], course: Course, keys: list[str]) -> None:
    said = advice(Report(run_id="x", **parts), course)
    assert [one.key for one in said] == keys
    assert all(one.text.endswith(".") and one.reason.endswith(".") for one in said)


def test_at_most_three_sentences_of_which_none_takes_back_another() -> None:
    parts = {
        "held_out": held_out(0.8, 50, group("German", -0.3)),
        "forgetting": general(0.5, 0.4),
        "memorising": by_heart(0.5, recited=40),
        "moved": matrices(2, 64),
    }
    said = advice(Report(run_id="x", **parts), FALLING)
    assert [one.key for one in said] == ["memorised", "forgot", "more_of_a_kind"]
    assert len(said) == MOST
    assert "row 3 is said word for word for 40 tokens" in said[0].reason
    assert "in German" in said[2].text
