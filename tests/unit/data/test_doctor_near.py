"""Near duplicates: planted ones are found, others are not, and the same rows are found in every process."""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from random import Random

import pytest
from near_rows import exchange, rows_to_group, texts_with_copies
from whole_rows import examine

from core.contract.data import Example
from core.data.doctor.findings.text_words import WordNumbers, words_of
from core.data.doctor.minhash import ALIKE, SKETCH, MinHash
from core.data.doctor.split_groups import find_groups


def jaccard(one: Sequence[str], other: Sequence[str]) -> float:
    """By definition, over shingles of three words."""
    first, second = ({tuple(text[place : place + 3]) for place in range(len(text) - 2)} for text in (one, other))
    return len(first & second) / len(first | second)


def sketched(texts: Sequence[Sequence[str]]) -> MinHash:
    minhash, numbers = MinHash(), WordNumbers()
    for text in texts:
        minhash.add([numbers[word] for word in text])
    assert len(list(minhash.steps())) > 0
    return minhash


@pytest.mark.parametrize(
    ("rows", "seed", "longest"),
    [(600, 1, 120), *(pytest.param(8000, seed, 400, marks=pytest.mark.slow) for seed in range(5))],
)
def test_planted_copies_are_found_and_nothing_else(rows: int, seed: int, longest: int) -> None:
    texts, pairs = texts_with_copies(rows, seed, longest)
    minhash = sketched(texts)
    group_of = {row: number for number, group in enumerate(minhash.groups()) for row in group}
    alike = [(one, other) for one, other in pairs if jaccard(texts[one], texts[other]) >= ALIKE]
    hit = [(one, other) for one, other in alike if group_of.get(one, -1) == group_of.get(other, -2)]
    assert len(alike) > rows // 20, "the draw plants too few"
    assert len(hit) >= 0.99 * len(alike)
    for group in minhash.groups():  # what is joined is alike somebody in its group, by the textbook's count
        for row in group:
            assert max(jaccard(texts[row], texts[other]) for other in group if other != row) >= ALIKE


def test_the_sample_of_a_long_row_estimates_its_likeness() -> None:
    dice = Random(7)
    long = [f"w{dice.randrange(10**6)}" for _ in range(6 * SKETCH)]
    close, far = list(long), list(long)
    for copy, share in ((close, 0.02), (far, 0.15)):
        for place in dice.sample(range(len(long)), int(share * len(long))):
            copy[place] = "changed"
    minhash = sketched([long, close, far])
    assert minhash.alike(0, 1) == pytest.approx(jaccard(long, close), abs=0.05)
    assert minhash.alike(0, 2) == pytest.approx(jaccard(long, far), abs=0.05)
    assert minhash.groups() == [[0, 1]]


def test_shared_instructions_make_no_copies() -> None:
    dice = Random(2)
    shared = "decide whether the following review of a film is positive or negative and answer in one word"
    instruction = shared.split(" ")
    texts = [[*instruction, *(f"x{dice.randrange(10**6)}" for _ in range(6)), "positive"] for _ in range(200)]
    assert jaccard(texts[0], texts[1]) > 0.4
    assert sketched(texts).groups() == []
    again = [*texts, [*texts[5][:-1], "positive"]]
    assert sketched(again).groups() == [[5, 200]]


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        ("Is it so?", "is it so", True),
        ("Is it so?", "Is it not so?", False),
        ("2 + 2", "2 - 2", False),
        ("yes", "no", False),
        ("\U0001f600", "\U0001f622", False),
        ("?", "!", False),
        ("今天天气很好我们去公园吧", "今天天气很好,我们去公园吧。", True),
        ("今天天气很好我们去公园吧", "明天天气不好我们在家里吧", False),
    ],
)  # fmt: skip
def test_short_rows_are_alike_only_word_for_word(one: str, other: str, together: bool) -> None:
    assert sketched([words_of(one), words_of("Something else altogether"), words_of(other)]).groups() == (
        [[0, 2]] if together else []
    )


@pytest.mark.slow
def test_rows_that_are_nearly_alike_are_not_compared_for_ever() -> None:
    """Fifty thousand rows of 250 templates, each a little less alike than counts: the worst for a banded search."""
    dice, numbers, minhash = Random(5), WordNumbers(), MinHash()
    for row in range(50_000):
        shared = [f"t{row // 200}w{place}" for place in range(60)]
        minhash.add([numbers[word] for word in [*shared, *(f"o{dice.randrange(10**7)}" for _ in range(10))]])
    begun = time.process_time()
    assert list(minhash.steps())
    assert minhash.groups() == []
    assert time.process_time() - begun < 30


def chat_rows(count: int, characters: int) -> Iterator[Example]:
    dice = Random(11)
    words = ["".join(dice.choices("abcdefghijklmnoprstuvw", k=dice.randint(2, 9))) for _ in range(20_000)]
    weights = list(accumulate(1 / (rank + 10) for rank in range(len(words))))
    for row in range(1, count + 1):
        said = [" ".join(dice.choices(words, cum_weights=weights, k=characters // 24)) + "." for _ in range(4)]
        yield Example(row=row, messages=(*exchange(said[0], said[1]), *exchange(said[2], said[3])))


@pytest.mark.parametrize(
    ("rows", "seconds"), [(1_000, 1.0), pytest.param(50_000, 30.0, marks=pytest.mark.slow)]
)  # fmt: skip
def test_the_examination_is_quick(rows: int, seconds: float) -> None:
    """40 MB of conversations in half a minute of one core, a small file while a page is drawn."""
    table = list(chat_rows(rows, 800))
    assert sum(example.characters for example in table) > 700 * rows
    begun = time.process_time()
    found = examine(table)
    assert time.process_time() - begun < seconds
    assert found.rows == rows


def test_empty_single_and_many_alike_rows() -> None:
    assert sketched([["alone", "here"]]).groups() == sketched([["a"], [], ["b"]]).groups() == []
    assert list(MinHash().steps()) == []
    base = [f"w{number}" for number in range(60)]
    texts = [[*base[:place], "other", *base[place + 1 :]] for place in range(25)]
    assert sketched(texts).groups() == [list(range(25))]


def test_words_are_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.data.doctor.findings.text_words._MOST_WORDS", 100)
    numbers = WordNumbers()
    given = [numbers[f"w{number}"] for number in range(1000)]
    assert [numbers[f"w{number}"] for number in range(1000)] == given
    assert numbers["x" * 1000] != numbers["x" * 1001]
    assert len(numbers) <= 100
    assert max(map(len, numbers)) <= 64


def test_findings_name_rows_as_the_file_numbers_them() -> None:
    rows = rows_to_group()
    findings = {finding.code: finding for finding in examine(rows).findings}
    assert findings["exact_duplicates"].rows == (999,)
    near = findings["near_duplicates"]
    assert all(row % 2 == 1 for group in near.groups for row in group)
    assert near.count == len(set(near.rows)) > 20
    assert near.level == "warning"


def test_kinship_is_the_same_in_another_process() -> None:
    """Python's own hash of a text is another one in every process: the split must not hang on it."""
    script = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from near_rows import rows_to_group\n"
        "from core.data.doctor.split_groups import find_groups\n"
        "print(find_groups(rows_to_group()).rows)\n"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(find_groups(rows_to_group()).rows)
    assert len(find_groups(rows_to_group()).rows) > 10


def test_a_conversation_and_its_continuation_are_one_group() -> None:
    opening = exchange("Tell me of the harbour. " * 6, "It is wide. " * 9)
    longer = (*opening, *exchange("And the ships?", "Many. " * 200))
    said = [opening, exchange("Something else?", "No."), longer]
    rows = [Example(row=row, messages=turns) for row, turns in enumerate(said, start=1)]
    assert find_groups(rows).rows == ((1, 3),)
    hello = exchange("Hello", "Hi! How can I help?")
    greetings = [
        Example(row=row, messages=(*hello, *exchange(f"Name the {row}th king.", f"He was called {row}.")))
        for row in range(1, 6)
    ]
    assert find_groups(greetings).rows == ()
