"""Findings on answers (empty, placeholders, single words among long ones, cut away by the length limit) and on system
prompts."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from core.contract.data import Example, Finding
from core.data.doctor.findings.text_words import words_of
from core.data.doctor.findings.wording import finding, how_many, share

_STAND_INS = frozenset(
    {"null", "nan", "undefined", "nooutput", "no output", "noinput", "no input", "#n/a", "#ref!", "#value!", "#name?",
     "[object object]"}
)  # fmt: skip
_LONG_ANSWER = 80
"""Where the median answer has so many characters, a single word is unusual."""


def answer_of(example: Example) -> str | None:
    """The last answer, or the chosen one of a preference; None where there is none (raw text, calls)."""
    if example.chosen:
        return example.chosen
    for turn in reversed(example.messages):
        if turn.role == "assistant":
            return None if turn.tool_calls and not turn.content.strip() else turn.content
    return None


def has_empty_answer(example: Example) -> bool:
    """Whether an answer that would be learned is empty or a placeholder; one marked bad is not."""
    if example.mark is False:
        return False
    answers = [turn.content for turn in example.messages if turn.role == "assistant" and not turn.tool_calls]
    for text in [*answers, example.chosen] if example.chosen else answers:
        bare = text.strip().lower()
        if not bare or (len(bare) <= 24 and not _STAND_INS.isdisjoint({bare, bare.strip("<>()\"'")})):
            return True
    return False


def is_one_word(example: Example) -> bool:
    """Whether the last answer is one word (one character in writing without spaces) and not in the question, since a
    choice among given labels is a complete answer. One marked bad may be anything."""
    answer = None if example.mark is False else answer_of(example)
    if answer is None or not 0 < len(answer.strip()) <= 40 or len(words := words_of(answer)) != 1:
        return False
    question = next((turn.content for turn in reversed(example.messages) if turn.role == "user"), "")
    return words[0] not in words_of(question)


def short_finding(rows: list[int], lengths: Sequence[int]) -> Finding | None:
    """Rows answered in one word, where most are not. ``lengths``: characters of all answers."""
    if not rows or 2 * len(rows) > len(lengths):
        return None
    usual = statistics.median(lengths)
    if usual < _LONG_ANSWER:
        return None
    text = (
        f"{how_many(len(rows), 'row is', 'rows are')} answered in one word ({share(len(rows), len(lengths))}), where "
        f"the usual answer has {usual:,.0f} characters. Right for a label or a name; else the model learns to be curt."
    )
    return finding("short_answers", "note", text, rows)


def system_of(example: Example) -> Literal["no_system", "system", "late_system", "raw text"]:
    """Where a row's system prompt stands; late: after the first turn, or several."""
    if not example.messages:
        return "raw text"
    places = [place for place, turn in enumerate(example.messages) if turn.role == "system" and turn.content.strip()]
    return "no_system" if not places else "system" if places == [0] else "late_system"


def system_finding(without: list[int], having: list[int], default: str) -> Finding | None:
    """Rows with and without a system prompt in one file; ``default``: what those without are given."""
    if not without or not having or default.strip():
        return None
    fewer, how = (without, "without one") if len(without) <= len(having) else (having, "that bring one")
    text = (
        f"{how_many(len(having), 'row brings', 'rows bring')} a system prompt and {how_many(len(without), 'row')} "
        f"({share(len(without), len(without) + len(having))}) none: the model learns two ways to answer. The rows "
        f"{how} are listed; a system prompt given under Data fills those without."
    )
    return finding("system_prompts", "note", text, fewer)


@dataclass(frozen=True)
class RowLength:
    """A row's uncut tokens, and its trained tokens within the limit."""

    row: int
    tokens: int
    trained: int


def length_findings(lengths: Iterable[RowLength], max_length: int, whole: int) -> list[Finding]:
    """Rows that the length limit cuts. ``whole``: rows of the file, of which ``lengths`` may be a sample."""
    long_rows: list[int] = []
    gone: list[int] = []
    measured = lost = longest = tokens = 0
    for item in lengths:
        measured += 1
        tokens += item.tokens
        longest = max(longest, item.tokens)
        if item.tokens > max_length:
            long_rows.append(item.row)
            lost += item.tokens - max_length
            if not item.trained:
                gone.append(item.row)
    of = f" of {how_many(measured, 'row')} looked at" if measured < whole else ""
    findings = []
    if long_rows:
        text = (
            f"{how_many(len(long_rows), 'row is', 'rows are')} longer than {max_length:,} tokens and cut there "
            f"({share(len(long_rows), measured)}{of}): {lost:,} tokens ({share(lost, tokens)}) are not learned from. "
            f"The longest has {longest:,}."
        )
        findings.append(finding("long_rows", "warning" if 20 * len(long_rows) > measured else "note", text, long_rows))
    if gone:
        text = (
            f"{how_many(len(gone), 'row has', 'rows have')} no answer left within {max_length:,} tokens "
            f"({share(len(gone), measured)}{of}): nothing is learned there. Allow longer examples, or shorten the "
            "questions."
        )
        findings.append(finding("answer_cut", "fault" if 20 * len(gone) > measured else "warning", text, gone))
    return findings
