"""A report's figures in words: losses, intervals, shares, checks; and the tone of each. The unknown is "–"."""

import math
from dataclasses import dataclass

from core.report.choices import Check
from core.report.schema import Figure, HeldOut, Report
from studio.figures.pictures import MOST
from studio.figures.run_figures import UNKNOWN
from studio.pages.report.words import say

TONES = {"better": "good", "worse": "bad", "same": "quiet"}
"""The tone of a change."""


def number(value: float | None, digits: int = 3, sign: str = "") -> str:
    """A value with so many decimals and a real minus sign; with ``sign`` "+" a plus where it is positive."""
    if value is None or not abs(value) <= MOST:
        return UNKNOWN
    shown = round(value, digits) or 0.0  # no -0
    return f"{shown:{sign if shown else ''},.{digits}f}".replace("-", "−")


def signed(value: float | None, digits: int = 3) -> str:
    """A change: the same with its sign."""
    return number(value, digits, "+")


def percent(value: float | None, digits: int = 0) -> str:
    """A share in per cent."""
    return UNKNOWN if value is None else f"{number(100 * value, digits)}%"


def between(figure: Figure | None, digits: int = 3) -> str:
    """A figure's interval: "1.402 to 1.466"; empty where there is none."""
    if figure is None or figure.low is None or figure.high is None:
        return ""
    return say("report.between", low=number(figure.low, digits), high=number(figure.high, digits))


def between_shares(figure: Figure | None) -> str:
    """A share's interval in per cent."""
    if figure is None or figure.low is None or figure.high is None:
        return ""
    return say("report.between", low=percent(figure.low), high=percent(figure.high))


def perplexity(value: float) -> str:
    """exp of a loss in nats a token, as it is read."""
    shown = math.exp(min(value, 700.0))
    return number(shown, 2) if shown < 100 else f"{shown:,.0f}" if shown < 1e7 else f"{shown:.1e}"


def way(before: float | None, after: float | None, digits: int = 3) -> str:
    """ "2.314 → 1.421"; the second alone where there is nothing before."""
    end = number(after, digits)
    return end if before is None else f"{number(before, digits)} → {end}"


def shares_way(before: Figure | None, after: Figure | None) -> str:
    """ "52% → 81%"."""
    if after is None:
        return UNKNOWN
    return percent(after.value) if before is None else f"{percent(before.value)} → {percent(after.value)}"


@dataclass(frozen=True)
class Headline:
    """What a report says first: a sentence, one figure before and after, and what stands below."""

    text: str
    more: str
    label: str
    before: str
    after: str
    tone: str


def lacks(report: Report) -> bool:
    """Whether a part could be measured that is not whole."""
    return any(part.why not in ("", *MEANT) for part in report.parts)


MEANT = ("task", "none")
"""Reasons of a part that are no lack."""


def headline(report: Report) -> Headline:
    """Whether it learned."""
    held = report.held_out
    if held is None:
        part = report.part("held_out")
        why = (part.text or say(f"report.why.{part.why or 'none'}")) if part else say("report.why.none")
        return Headline(say("report.verdict.unknown"), why, say("report.loss"), "", UNKNOWN, "quiet")
    tone, rows = TONES[held.change], f"{held.rows:,}"
    if held.accuracy_after is not None:
        return _of_shares(held, rows, kind_of(report))
    digits = digits_of(held)
    ends = {"after": number(held.after.value, digits), "rows": rows}
    if held.before is None:
        return Headline(say("report.verdict.alone", **ends), "", unit_words(held), "", ends["after"], tone)
    ends["before"] = number(held.before.value, digits)
    text = say(f"report.verdict.{held.change}", **ends)
    return Headline(text, _difference(held), unit_words(held), ends["before"], ends["after"], tone)


def digits_of(held: HeldOut) -> int:
    """Two decimals where value and change are seen in them, else three."""
    apart = abs(held.after.value - held.before.value) if held.before else 1.0
    return 2 if min(apart, held.after.value) >= 0.05 else 3


def unit_words(held: HeldOut) -> str:
    """What the held-out figure is."""
    return say(f"report.unit.{held.unit}")


def kind_of(report: Report) -> str:
    """What is right or not: a label, or a pair."""
    return "label" if report.problem else "pair"


def _of_shares(held: HeldOut, rows: str, kind: str) -> Headline:
    """Of pairs and labels the share that is right speaks first: a loss of chosen answers may rise while pairs are
    learned."""
    before, after = held.accuracy_before, held.accuracy_after
    assert after is not None
    ends = {"after": percent(after.value), "rows": rows}
    loss = say(f"report.verdict.{kind}.loss", way=way(held.before.value if held.before else None, held.after.value))
    label = say(f"report.accuracy.{kind}")
    if before is None:
        return Headline(say(f"report.verdict.{kind}.alone", **ends), loss, label, "", ends["after"], "quiet")
    ends["before"] = percent(before.value)
    unsure = after.low is not None and after.high is not None and after.low <= before.value <= after.high
    tone = "quiet" if unsure or after.value == before.value else "good" if after.value > before.value else "bad"
    return Headline(say(f"report.verdict.{kind}", **ends), loss, label, ends["before"], ends["after"], tone)


def _difference(held: HeldOut) -> str:
    """The change with its interval, and what it means as perplexity."""
    if held.before is None or held.difference is None:
        return ""
    parts = [say("report.difference", by=signed(held.difference.value), unit=say(f"report.per.{held.unit}"))]
    if interval := between(held.difference):
        parts.append(say("report.interval", between=interval))
    told = " ".join(parts) + "."
    if not held.has_perplexity:
        return told
    ends = f"{perplexity(held.before.value)} → {perplexity(held.after.value)}"
    return f"{told} {say('report.perplexity', way=ends)}"


def check_words(check: Check) -> str:
    """What a check asks of an answer, in one line."""
    kind, own = check.kind, "" if check.expected else ".own"
    if kind == "length":
        key = "between" if check.least and check.most else "most" if check.most else "least"
        unit = say(f"report.unit.{check.unit}")
        return say(f"check.length.{key}", least=check.least, most=check.most, unit=unit)
    shown = check.expected if len(check.expected) <= 60 else f"{check.expected[:57]}…"
    more = (
        f" {say('check.tolerance', tolerance=f'{check.tolerance:g}')}" if kind == "number" and check.tolerance else ""
    )
    return say(f"check.{kind}{own}", expected=shown) + more
