"""A report on a run that never was, with every part in it: for the page and for the schema."""

from __future__ import annotations

import math

from core.report.choices import Check
from core.report.schema import (
    Advice,
    Answers,
    AnswersPart,
    Copied,
    Figure,
    Forgetting,
    Group,
    HeldOut,
    Matrix,
    Memorising,
    Moved,
    Part,
    Recited,
    Report,
    RowLoss,
    Tally,
    TextLoss,
    Verdict,
)

_ASKED = (
    ("What is the capital of Norway?", "Oslo.", "The capital of Norway is Oslo, a city.", "Oslo."),
    ("How many legs have three cats?", "12", "Cats have four legs.", "Three cats have 12 legs."),
    ("Say as JSON: a red house.", '{"what": "house", "colour": "red"}', "A red house.", '{"what": "house"}'),
    ("Wie heißt der längste Fluss Europas?", "Die Wolga.", "The Volga.", "Die Wolga."),
)
_PROJECTIONS = {"q_proj": 0.031, "k_proj": 0.024, "v_proj": 0.040, "o_proj": 0.038, "gate_proj": 0.052,
                "up_proj": 0.060, "down_proj": 0.066}  # fmt: skip


def example(run_id: str = "2026-11-20_2243_mistral-7b_k3f9", worth: float = 1.0) -> Report:
    """The report; ``worth`` is how much of the loss's fall this run has, so that two can be compared."""
    fall = 0.62 * worth
    return Report(
        run_id=run_id,
        title="Mistral 7B, house style",
        model="Mistral 7B v0.3",
        checkpoint="step-000200",
        step=200,
        data="questions.jsonl",
        held_out_sha256="5f" * 32,
        device="NVIDIA GeForce RTX 4090",
        made_at=1_795_400_000.0,
        run_seconds=2_412.0,
        budget_seconds=241.2,
        budget_text="A tenth of the run's 40 min.",
        seconds=236.4,
        parts=(
            Part(name="moved", done=28, total=28, unit="matrices", seconds=3.1),
            Part(name="held_out", done=96, total=96, unit="rows", seconds=41.0),
            Part(name="answers", done=4, total=20, unit="prompts", seconds=118.0, why="budget"),
            Part(name="forgetting", done=40, total=40, unit="texts", seconds=38.2),
            Part(name="memorising", done=64, total=64, unit="rows", seconds=36.1),
        ),
        held_out=_held_out(fall),
        answers=_answers(),
        forgetting=_forgetting(),
        moved=_moved(worth),
        memorising=_memorising(fall),
        advice=(
            Advice(
                key="more_rows",
                text="Add rows in German: they learned least.",
                reason="Their loss fell by 0.09, that of English rows by 0.71; 12 of 96 held-out rows are German.",
            ),
            Advice(
                key="forgetting",
                text="Mix a tenth of general rows into the data, or take a lower learning rate.",
                reason="On code the loss rose by 0.14 (0.08 to 0.20).",
            ),
        ),
    )


def _around(value: float, half: float, of: int) -> Figure:
    return Figure(value=round(value, 4), low=round(value - half, 4), high=round(value + half, 4), of=of)


def _group(by: str, name: str, rows: int, before: float, fall: float) -> Group:
    half = 0.3 / math.sqrt(rows)
    return Group.model_validate(
        {
            "by": by,
            "name": name,
            "rows": rows,
            "tokens": rows * 90,
            "before": _around(before, half, rows),
            "after": _around(before - fall, half, rows),
            "difference": _around(-fall, half / 2, rows),
            "change": "same" if abs(fall) < half / 2 else "better" if fall > 0 else "worse",
        }
    )


def _held_out(fall: float) -> HeldOut:
    return HeldOut(
        unit="nats a token",
        rows=96,
        tokens=8_640,
        before=_around(1.94, 0.08, 96),
        after=_around(1.94 - fall, 0.07, 96),
        difference=_around(-fall, 0.03, 96),
        change="better",
        groups=(
            _group("source", "questions", 70, 1.90, fall + 0.04),
            _group("source", "letters", 26, 2.05, fall - 0.10),
            _group("language", "English", 84, 1.88, fall + 0.08),
            _group("language", "German", 12, 2.36, 0.09),
            _group("length", "1–64", 40, 2.10, fall),
            _group("length", "65–256", 48, 1.85, fall),
            _group("length", "257–2048", 8, 1.60, -0.06),
        ),
        worse=(RowLoss(row=311, tokens=402, before=1.21, after=1.58, text="Dear Sir or Madam, I write to you about"),),
        hardest=(RowLoss(row=77, tokens=12, before=4.4, after=3.9, text="Wie heißt der längste Fluss Europas?"),),
        formula="95% intervals: bootstrap over rows, 2,000 draws, percentiles 2.5 and 97.5.",
    )


def _answers() -> AnswersPart:
    checks = (
        Check(name="Right word", kind="contains"),
        Check(name="Short", kind="length", most=6),
        Check(name="Valid JSON", kind="json", expected='{"type": "object", "required": ["what", "colour"]}'),
    )
    verdicts = (
        (Verdict(check="Right word", before=True, after=True), Verdict(check="Short", before=False, after=True)),
        (Verdict(check="Right word", before=False, after=True), Verdict(check="Short", before=True, after=True)),
        (
            Verdict(check="Right word", before=False, after=False, why="The reference does not stand in it."),
            Verdict(check="Short", before=True, after=True),
            Verdict(check="Valid JSON", before=False, after=False, why="'colour' is missing."),
        ),
        (Verdict(check="Right word", before=False, after=True), Verdict(check="Short", before=True, after=True)),
    )
    rows = tuple(
        Answers(row=7 + 60 * place, prompt=prompt, reference=right, before=before, after=after, verdicts=said)
        for place, ((prompt, right, before, after), said) in enumerate(zip(_ASKED, verdicts, strict=True))
    )
    tallies = (
        Tally(
            check=checks[0], of=4, passed_before=1, passed_after=3, failing=(127,),
            before=Figure(value=0.25, low=0.0063, high=0.8059, of=4),
            after=Figure(value=0.75, low=0.1941, high=0.9937, of=4),
        ),
        Tally(
            check=checks[1], of=4, passed_before=3, passed_after=4,
            before=Figure(value=0.75, low=0.1941, high=0.9937, of=4),
            after=Figure(value=1.0, low=0.3976, high=1.0, of=4),
        ),
        Tally(
            check=checks[2], of=1, passed_before=0, passed_after=0, failing=(127,),
            before=Figure(value=0.0, low=0.0, high=0.975, of=1), after=Figure(value=0.0, low=0.0, high=0.975, of=1),
        ),
        Tally(check=Check(name="Date", kind="regex", expected="["), fault="unterminated character set at position 0"),
    )  # fmt: skip
    return AnswersPart(rows=rows, tallies=tallies, most_tokens=256)


def _forgetting() -> tuple[Forgetting, ...]:
    return (
        Forgetting(
            name="general",
            texts=40,
            tokens=5_120,
            kl=_around(0.061, 0.02, 40),
            before=_around(2.31, 0.2, 40),
            after=_around(2.35, 0.2, 40),
            difference=_around(0.04, 0.02, 40),
            change="worse",
            groups=(
                _group("kind", "everyday English", 10, 2.40, -0.01),
                _group("kind", "code", 6, 1.10, -0.14),
                _group("kind", "German", 4, 2.80, -0.02),
            ),
            worst=(TextLoss(text="def area(width, height):", kind="code", tokens=88, before=1.0, after=1.3, kl=0.21),),
        ),
    )


def _moved(worth: float) -> Moved:
    matrices = tuple(
        Matrix(
            module=f"model.layers.{layer}.{'self_attn' if name[0] in 'qkvo' else 'mlp'}.{name}",
            layer=layer,
            projection=name,
            norm=round(60 * share * worth * (1 + 0.4 * math.sin(layer)), 4),
            relative=round(share * worth * (1 + 0.4 * math.sin(layer)) / 4, 5),
            rank=16,
            effective_rank=round(4 + 3 * math.cos(layer), 2),
            directions=5,
            singular=tuple(round(2 * share * worth * 0.8**place, 5) for place in range(16)),
        )
        for layer in range(4)
        for name, share in _PROJECTIONS.items()
    )
    norm = math.sqrt(sum(one.norm**2 for one in matrices))
    return Moved(norm=round(norm, 4), relative=0.012, matrices=matrices)


def _memorising(fall: float) -> Memorising:
    return Memorising(
        trained=_around(1.86 - fall, 0.06, 64),
        trained_before=_around(1.92, 0.06, 64),
        held_out=_around(1.94 - fall, 0.07, 96),
        gap=_around(0.08, 0.09, 160),
        copied=(Copied(row=67, from_row=12, tokens=9, answer_tokens=31, before=4, text="is a city in the south of"),),
        recited=(Recited(row=204, tokens=22, answer_tokens=60, before=3, text="The house stands on a hill and"),),
    )
