"""The data doctor's findings, each where it should speak, where it should not, and at its edge."""

import time
import unicodedata
from collections.abc import Sequence
from random import Random

import pytest
from whole_rows import examine

from core.contract.config import DataChoice
from core.contract.data import Example, Finding, Message
from core.data.doctor.findings.answers import RowLength, has_empty_answer, is_one_word, length_findings
from core.data.doctor.findings.marks import clean, has_damage, has_unseen, marks_in
from core.data.doctor.findings.repeats import digest_of
from core.data.doctor.fixes import Fixing

LONG = "It depends on the weather, on the season and on what the harbour master says about the tide that morning. "


def talk(row: int, *said: str, system: str = "") -> Example:
    """Question, answer, question, answer ..."""
    turns = [Message(role="system", content=system)] if system else []
    turns += [Message(role="assistant" if place % 2 else "user", content=text) for place, text in enumerate(said)]
    return Example(row=row, messages=tuple(turns))


def plain(count: int, first: int = 1) -> list[Example]:
    """Rows in which nothing is to be found."""
    dice = Random(first)
    words = [a + b for a in ("ma", "lo", "ter", "vin", "sa", "qu", "dor", "fel") for b in ("ra", "mi", "nos", "tel")]
    return [
        talk(row, f"Please tell me: {' '.join(dice.choices(words, k=9))}?", " ".join(dice.choices(words, k=40)))
        for row in range(first, first + count)
    ]


def codes(examples: Sequence[Example], choice: DataChoice | None = None) -> dict[str, Finding]:
    """What is found, by its code."""
    return {finding.code: finding for finding in examine(examples, choice).findings}


def test_nothing_is_found_in_plain_rows() -> None:
    checkup = examine(plain(300), seed=1)
    assert (checkup.rows, checkup.findings) == (300, ())


def test_exact_duplicates_are_equal_after_white_space_and_nfc() -> None:
    rows = [*plain(20), talk(21, "Où est  le café ?", "Là-bas.\n"), talk(22, "Où est le café ?", "Là-bas.")]
    rows.append(talk(23, unicodedata.normalize("NFD", "Où est le café ?"), "Là-bas."))
    finding = codes(rows)["exact_duplicates"]
    assert (finding.rows, finding.groups, finding.count) == ((22, 23), ((21, 22, 23),), 2)
    assert (finding.fix, finding.fix_text) == ("keep_first", "Leave out 2 repeated rows")


@pytest.mark.parametrize(
    "other",
    [
        talk(2, "where is it?", "There."),
        talk(2, "Where is it?", "There.", system="Be brief."),
        Example(row=2, messages=talk(2, "Where is it?", "There.").messages, tools='[{"name": "look"}]'),
        Example(row=2, messages=talk(2, "Where is it?").messages, chosen="There.", rejected="Here."),
    ],
)
def test_what_differs_in_anything_is_no_exact_duplicate(other: Example) -> None:
    assert digest_of(talk(1, "Where is it?", "There.")) != digest_of(other)


def pair(row: int, chosen: str, rejected: str) -> Example:
    return Example(row=row, messages=talk(0, "Which one?").messages, chosen=chosen, rejected=rejected)


def conflicts(*examples: Example) -> tuple[str, tuple[tuple[int, ...], ...]] | None:
    finding = codes([*plain(20), *examples]).get("conflicting_answers")
    return finding and (finding.level, finding.groups)


def test_conflicting_answers() -> None:
    yes, no, again = talk(21, "Is it good?", "yes"), talk(22, "Is  it good?", "no"), talk(23, "Is it good?", "yes")
    assert conflicts(yes, no, again) == ("warning", ((21, 22, 23),))
    longer = [talk(21, "Write a verse.", LONG), talk(22, "Write a verse.", LONG + "And so on.")]
    assert conflicts(*longer) == ("note", ((21, 22),))
    assert conflicts(yes, again) is None
    assert conflicts(yes, talk(22, "Is it good?", "no", system="Lie.")) is None
    # Of pairs only those where better and worse change places.
    assert conflicts(pair(21, "left", "right"), pair(22, "left", "up"), pair(23, "down", "up")) is None
    changed = conflicts(pair(21, "left", "right"), pair(22, "down", "left"), pair(23, "a", "b"))
    assert changed == ("warning", ((21, 22),))


@pytest.mark.parametrize(("times", "told"), [(20, True), (21, False)])
def test_an_instruction_that_many_rows_share_is_no_question(times: int, told: bool) -> None:
    answers = plain(times, first=100)
    shared = [talk(row, "Go on.", one.messages[1].content) for row, one in enumerate(answers, start=100)]
    assert ("conflicting_answers" in codes([*plain(99), *shared])) is told


@pytest.mark.parametrize(
    ("answer", "empty"),
    [("", True), (" \n", True), ("nan", True), ("<nooutput>", True), ("None", False), ("-", False), ("0", False),
     ("The value is null.", False)],
)  # fmt: skip
def test_empty_answers(answer: str, empty: bool) -> None:
    assert has_empty_answer(talk(1, "What?", answer)) is empty
    assert has_empty_answer(talk(1, "What?", answer, "And?", "Fine.")) is empty


def test_a_call_without_words_is_no_empty_answer() -> None:
    call = Message(role="assistant", content="", tool_calls='[{"name": "look", "arguments": {}}]')
    example = Example(row=1, messages=(Message(role="user", content="Look."), call))
    assert not has_empty_answer(example)
    assert codes([*plain(5), example, talk(9, "What?", "Yes.", "And?", " ")])["empty_answers"].rows == (9,)


def test_one_word_answers_are_told_where_others_are_long() -> None:
    rows = [talk(row, f"Question {row}?", LONG + str(row)) for row in range(1, 20)]
    rows += [talk(20, "Why is that so?", "Because."), talk(21, "Is it red or blue?", "Blue")]
    finding = codes(rows)["short_answers"]
    assert (finding.rows, finding.level) == ((20,), "note")
    assert "short_answers" not in codes([talk(row, f"Text number {row}", "positive") for row in range(1, 20)])
    assert not is_one_word(talk(1, "How?", "By hand."))
    assert not is_one_word(talk(1, "怎么样？", "很好"))
    assert is_one_word(talk(1, "怎么样？", "好"))


def test_system_prompts_in_some_rows_only() -> None:
    with_one, without = [talk(row, f"q {row}", LONG, system="Be kind.") for row in (1, 2, 3)], talk(4, "q 4", LONG)
    finding = codes([*with_one, without])["system_prompts"]
    assert (finding.rows, finding.level) == ((4,), "note")
    given = DataChoice(system_prompt="Be kind.")
    for found in (codes([*with_one, without], choice=given), codes(with_one), codes([without])):
        assert "system_prompts" not in found


def test_late_system_prompts() -> None:
    first = talk(7, "One?", "Two.", system="A.")
    late = Example(row=7, messages=(*first.messages, Message(role="system", content="B.")))
    assert codes([*plain(3), late])["late_system"].rows == (7,)
    assert "late_system" not in codes([*plain(3), first])
    assert codes([Example(row=1, text="A book.")]) == {}


def test_lengths_at_the_limit() -> None:
    rows = [RowLength(1, 512, 10), RowLength(2, 513, 10), RowLength(3, 600, 0), RowLength(4, 100, 5)]
    findings = {finding.code: finding for finding in length_findings(rows, 512, 4)}
    assert findings["long_rows"].rows == (2, 3)
    assert "89 tokens (5%)" in findings["long_rows"].text
    assert findings["answer_cut"].rows == (3,)
    assert findings["answer_cut"].level == "fault"
    assert length_findings(rows[:1], 512, 1) == []
    assert "of 4 rows looked at" in length_findings(rows, 512, 40_000)[0].text


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("Fine.<|im_end|>\n<|im_start|>user", {"chat_marks"}),
        ("[INST] Go on [/INST]", {"chat_marks"}),
        ("### Response: yes", {"chat_marks"}),
        ("Sure.\nHuman: and then?", {"chat_marks"}),
        ("An <|odd|> mark, [1] and a list: ### Results", set()),
        ("The human: a study.", set()),
        ("As an AI language model, I cannot smell.", {"stock_phrases"}),
        ("I'm sorry, but as an AI, I don't eat.", {"stock_phrases"}),
        ("As an AIDS charity we help. As an airline, too.", set()),
        ("Our models, as a language model would say it.", set()),
        ("Bread &amp; butter, <br> and a <b>plum</b>.", {"html"}),
        ("AT&T; R&D, 3 < 4 > 2, x<y>", set()),
        ("Use the <b> tag of HTML: <b>so</b> &amp; on.", set()),
        ("Type `<br>` here.", set()),
        ("First line.\\nSecond line.", {"markdown"}),
        ("See ![a tree](images/tree.png).", {"markdown"}),
        ("See ![a tree](https://example.org/tree.png).", set()),
        ("In C:\\new folder, or print('a\\nB') as code.", set()),
        ("```\nprintf(\"A\\nB\");\n```", set()),
    ],
)  # fmt: skip
def test_left_over_marks(text: str, kinds: set[str]) -> None:
    assert marks_in(talk(1, "What do you say?", text)) == kinds
    assert marks_in(talk(1, text, "I cannot.")) == kinds - {"stock_phrases"}, "phrases count in answers only"


@pytest.mark.parametrize(
    "piece",
    ["\n", " ", "### \n  ", "<a b='", "<p ", "![", "![](", "`", "```", "&amp", "</s> ", "\\n", "as a ", "<|",
     "Human: \n", "<p " + " " * 500],
)  # fmt: skip
def test_no_pattern_takes_long_over_a_hostile_row(piece: str) -> None:
    hostile = talk(1, "### Human: ", "<|im an AI" + piece * (300_000 // len(piece)))
    begun = time.process_time()
    examine([hostile])
    assert time.process_time() - begun < 3


def test_marks_are_findings_with_rows_and_weight() -> None:
    rows = [*plain(200), *(talk(300 + n, f"Say {n}", f"Well, {LONG}{n} <|im_end|>") for n in range(4))]
    finding = codes(rows)["chat_marks"]
    assert (finding.level, finding.rows) == ("fault", (300, 301, 302, 303))
    assert codes(rows[:-1])["chat_marks"].level == "warning"


@pytest.mark.parametrize(
    ("text", "after"),
    [("\ufeffHello", "Hello"), ("zero\u200bwidth", "zerowidth"), ("bell\x07.", "bell."),
     ("one\u2028two\x0c\n", "one\ntwo\n\n"), ("co\u00adoperate", "cooperate"),
     ("left\u200e to right", "left to right")],
)  # fmt: skip
def test_unseen_characters_are_cleaned(text: str, after: str) -> None:
    assert (has_unseen(text), clean(text), has_unseen(after)) == (True, after, False)


@pytest.mark.parametrize(
    ("text", "damaged"),
    [("plain, with\ttab\r\nand line", False), ("a family \U0001f468\u200d\U0001f469", False),
     ("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", False), ("\u05e9\u05dc\u05d5\u05dd\u200f!", False),
     ("na\u00efve caf\u00e9 \u2013 100\u00a0%", False), ("it\u00e2\u20ac\u2122s", True), ("caf\u00c3\u00a9 noir", True),
     ("50\ufffd", True), ("\x0crac{1}{2}", True), ("x \u00e2\x80\x94 y", True)],
)  # fmt: skip
def test_what_a_writing_needs_and_what_is_damaged_is_never_cleaned(text: str, damaged: bool) -> None:
    assert (has_damage(text), clean(text)) == (damaged, text)
    found = codes([*plain(5), talk(9, "What?", text)])
    assert "non_printing" not in found
    assert ("lost_letters" in found) == damaged


def test_only_the_first_rows_and_groups_cross() -> None:
    rows = [talk(row, "Same?", "Same.") for row in range(1, 1203)]
    finding = codes(rows)["exact_duplicates"]
    assert (finding.count, len(finding.rows), finding.rows[:2]) == (1201, 500, (2, 3))
    assert len(finding.groups[0]) == 50


def test_the_gravest_comes_first() -> None:
    rows = [
        *plain(50),
        *(talk(60 + n, f"What {n}?", "") for n in range(9)),
        talk(80, "Why so?", "\u200bBecause " + LONG),
    ]
    levels = [finding.level for finding in examine(rows).findings]
    assert levels == sorted(levels, key=["fault", "warning", "note"].index)
    assert levels[0] == "fault"


def marked(row: int, question: str, answer: str, mark: bool) -> Example:
    return talk(row, question, answer).model_copy(update={"mark": mark, "label": str(mark)})


def labelled(row: int, text: str, *labels: str) -> Example:
    return talk(row, text, ", ".join(labels)).model_copy(update={"labels": labels, "label": ", ".join(labels)})


def test_pairs_that_are_equal_or_stand_the_other_way_round() -> None:
    equal = pair(21, "same", " same").model_copy(update={"equal": True})
    found = codes([*plain(20), equal, pair(22, "left", "right"), pair(23, "a", "b"), pair(24, "right", " left")])
    assert (found["equal_pairs"].rows, found["equal_pairs"].fix_text) == ((21,), "Leave out 1 row")
    assert (found["swapped_pairs"].groups, found["swapped_pairs"].fix) == (((22, 24),), "")
    assert "conflicting_answers" not in found, "what is swapped is said once"
    kept = list(Fixing([("equal_pairs", ())]).rows([equal, pair(22, "left", "right")]))
    assert [row.row for row in kept] == [22]


def test_marked_answers_conflict_only_where_one_answer_has_both_marks() -> None:
    good, bad = marked(21, "Is it?", "As an AI language model, yes.", True), marked(22, "Is it?", "null", False)
    found = codes([*plain(20), good, bad])
    assert found.keys() == {"stock_phrases"}, "good and bad answers to one prompt are what marks are for"
    both = codes([*plain(20), good, marked(22, "Is it?", good.messages[-1].content, False)])
    assert both["conflicting_answers"].rows == (21, 22)
    assert "exact_duplicates" not in both
    phrase = codes([*plain(20), good, marked(22, "Is it?", "As an AI language model, no.", False)])["stock_phrases"]
    assert phrase.rows == (21,), "a bad answer may be bad"


@pytest.mark.parametrize(("bad", "told"), [(0, False), (1, True), (2, False)])
def test_marks_of_nearly_one_kind(bad: int, told: bool) -> None:
    rows = [one.model_copy(update={"mark": one.row > bad}) for one in plain(20)]
    finding = codes(rows).get("one_sided_marks")
    assert bool(finding) is told
    assert finding is None or finding.text.startswith("95% of the answers are marked good, 1 row bad")


def test_labels_of_several_spellings_and_labels_that_few_rows_have() -> None:
    rows = [
        labelled(one.row, one.messages[0].content, "fine film" if one.row > 3 else "Fine  Film") for one in plain(40)
    ]
    rows += [labelled(41, "what else is there", "poor"), labelled(42, "so much for that", "fine film", "Fine Film")]
    found = codes(rows)
    assert found["label_spellings"].rows == (1, 2, 3, 42)
    assert "“fine film” (38) and “Fine␣␣Film” (3) and “Fine Film” (1)" in found["label_spellings"].text
    assert found["rare_labels"].text.startswith("3 labels have fewer than 10 rows: “poor” (1), “Fine Film” (1), “Fine")
    assert (found["rare_labels"].level, found["rare_labels"].rows) == ("warning", (1, 2, 3, 41, 42))
    counts = {"fine film": 38, "Fine  Film": 3, "Fine Film": 1, "poor": 1}
    fixing = Fixing([("label_spellings", ())], counts)
    fixed = list(fixing.rows(rows))
    assert {row.labels for row in fixed} == {("fine film",), ("poor",)}
    assert fixed[0].messages[-1].content == fixed[41].label == "fine film"
    assert fixing.done == {"label_spellings": [1, 2, 3, 42]}
    assert [row.row for row in Fixing([("rare_labels", ())], {"poor": 1}).rows(rows)] == [*range(1, 41), 42]


def test_numbers_are_no_labels() -> None:
    rows = [labelled(one.row, one.messages[0].content, f"{one.row / 8}") for one in plain(20)]
    assert codes(rows) == {}
