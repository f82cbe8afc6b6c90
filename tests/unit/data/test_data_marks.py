"""Marked answers, labels, margins and equal pairs: what is read, what each method takes of it, and what is refused."""

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast
from whole_rows import read, read_report

from core.contract.config import DataChoice, RunConfig, TrainChoice
from core.contract.data import Example, Message
from core.contract.errors import DataError
from core.contract.methods import METHODS
from core.contract.tasks import Outputs, Problem
from core.data.files.example_file import ExampleFile, examples_in
from core.data.files.made import as_row
from core.data.files.mix import mixed_rows, parts_of
from core.data.read.demands import report_for
from core.data.read.examples import read_examples
from core.data.read.labels import outputs_of, separator_of
from core.data.read.marks import mark_of
from core.data.render.chat_tokens import tokenise
from core.data.render.labelled import encode_labelled, shown_labelled
from core.data.render.preview import encoded_sides, shown_rows
from core.data.render.renderer import renderer
from core.data.tokens.cache import settled
from core.data.tokens.facts import Measures
from core.data.tokens.table import Encoded, TableMaker, TokenTable

TURNS = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
MARKED: Any = "of marks"
LABELLED: Any = "of labels"
PAIR = {"prompt": "Hi", "chosen": "Hello", "rejected": "What"}


@pytest.fixture(autouse=True)
def methods(monkeypatch: pytest.MonkeyPatch) -> None:
    """A method of marks and one of labels, whatever the table holds."""
    monkeypatch.setitem(METHODS, MARKED, replace(METHODS["sft"], marked=True))
    monkeypatch.setitem(METHODS, LABELLED, replace(METHODS["sft"], labelled=True))


def marked(*labels: Any) -> list[dict[str, Any]]:
    return [{"messages": TURNS, "label": label} for label in labels]


def labelled(*labels: Any) -> list[dict[str, Any]]:
    return [{"text": f"text {number}", "label": label} for number, label in enumerate(labels)]


def examples_of(path: Path, examples: list[Example]) -> Path:
    path.write_text("".join(one.model_dump_json(exclude_defaults=True) + "\n" for one in examples))
    return path


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        (True, False), (1, 0), (1.0, 0.0), ("TRUE ", "false"), ("yes", "No"), ("👍🏽", "👎"), ("good", "bad"),
        ("thumbs_up", "thumbs down"), ("chosen", "rejected"), ("+1", "-1"), (1, -1), ("👍\ufe0f", "\u22121"),
    ],
)  # fmt: skip
def test_a_mark_is_read_however_it_is_written(tmp_path: Path, good: Any, bad: Any) -> None:
    report, _ = read(tmp_path, marked(good, bad, good))
    assert (report.layout, report.marks and report.marks.rows) == ("kto", (2, 1))
    assert [row.mark for row in read_examples(tmp_path / "rows.jsonl", DataChoice(), MARKED)] == [True, False, True]


def test_what_is_no_mark_is_the_rows_problem(tmp_path: Path) -> None:
    report, _ = read(tmp_path, marked("good", "soso", None, "bad"))
    assert [(one.row, one.code) for one in report.problems if one.code == "row.mark"] == [
        (2, "row.mark"), (3, "row.mark"),
    ]  # fmt: skip
    assert report.problems[0].text.startswith("label is 'soso', expected true or false, 1 or 0")
    nothing: list[Any] = ["", "2", 0.5, {}, ["good"]]
    assert [mark_of(one) for one in nothing] == [None] * 5


def test_rows_marked_bad_are_for_methods_of_marks_and_left_out_for_others(tmp_path: Path) -> None:
    plain, _ = read(tmp_path, marked("👍", "👎", "👍", "maybe", "👎"), DataChoice())
    both = report_for(plain, MARKED)
    plain = report_for(plain, "sft")
    assert (plain.usable, both.usable, plain.rows) == (2, 4, 5)
    assert [(one.code, one.rows, one.first_row) for one in plain.skipped] == [
        ("row.kto_false", 2, 2),
        ("row.mark", 1, 4),
    ]
    assert plain.skipped[0].text == "label is 👎: a bad answer, and bad answers are not trained on"
    assert [one.row for one in plain.problems] == [2, 4, 5]
    assert [one.row for one in both.problems] == [4]
    assert both.marks is not None
    assert (both.marks.good, both.marks.bad) == ({"👍": 2}, {"👎": 2})
    assert both.under("sft") == plain
    assert plain.under(MARKED) == both
    kept = examples_of(tmp_path / "examples.jsonl", list(read_examples(tmp_path / "rows.jsonl", DataChoice(), MARKED)))
    assert [row.row for row in examples_in(kept, plain.left_out)] == [1, 3]
    assert list(ExampleFile(kept, plain.left_out).numbers) == [1, 3]
    assert [ExampleFile(kept, out).matching("hello", ()) for out in (plain.left_out, ())] == [[0, 1], [0, 1, 2, 3]]


@pytest.mark.parametrize(("label", "mark", "other"), [(True, "good", "bad"), (0, "bad", "good")])
def test_marks_of_one_kind_are_refused_by_a_method_of_marks(tmp_path: Path, label: Any, mark: str, other: str) -> None:
    report, _ = read(tmp_path, marked(label, label))
    with pytest.raises(DataError, match=f"found all 2 marked {mark}") as caught:
        report_for(report, MARKED)
    assert f"Add answers marked {other}" in caught.value.hint
    report_for(report.model_copy(update={"complete": False}), MARKED)


def test_equal_pairs_are_left_out_of_pairs_and_refused_where_all_are(tmp_path: Path) -> None:
    same = {**PAIR, "rejected": " Hello\n"}
    report, examples = read(tmp_path, [PAIR, same])
    assert [(row.row, row.equal) for row in examples] == [(1, False)]
    assert [(one.code, one.text) for one in report.problems] == [
        ("row.equal_pair", "chosen and rejected are the same text")
    ]
    assert report_for(report, "sft").usable == 2, "the chosen answer is an answer"
    report, _ = read(tmp_path, [same, same])
    with pytest.raises(DataError, match="found 2 whose two answers are the same"):
        report_for(report, "dpo")


def test_a_margin_is_read_and_kept_with_both_answers(tmp_path: Path, tokenizer: Any) -> None:
    rows = [{**PAIR, "margin": "1.5"}, PAIR, {**PAIR, "margin": 2}, {**PAIR, "margin": "much"}]
    report, examples = read(tmp_path, rows)
    assert (report.unread, len(examples)) == (("margin",), 4), (
        "a column of that name that holds no numbers is no margin"
    )
    report, examples = read(tmp_path, rows, DataChoice(columns={"margin": "margin"}, layout="preference"))
    assert [row.margin for row in examples] == [1.5, None, 2]
    assert report.problems[0].text == "margin is text, expected a number"
    table = tokenise(renderer(tokenizer, DataChoice(template="chatml")), examples, "pairs")
    table.save(tmp_path / "part.npz")
    again = TokenTable.load(tmp_path / "part.npz")
    assert again is not None
    assert [row.margin for row in again.items()] == [1.5, 1.5, None, None, 2, 2]


def test_a_table_keeps_marks_and_labels_of_its_rows(tmp_path: Path, tokenizer: Any) -> None:
    turns = [*TURNS, {"role": "user", "content": "More"}, {"role": "assistant", "content": "Enough"}]
    read(tmp_path, [{"messages": turns, "label": "👍"}, *marked("👎")])
    examples = list(read_examples(tmp_path / "rows.jsonl", DataChoice(), MARKED))
    using = renderer(tokenizer, DataChoice(template="chatml"))
    table = tokenise(using, examples, "marks")
    table.save(tmp_path / "part.npz")
    again = TokenTable.load(tmp_path / "part.npz")
    assert again is not None
    good, bad = again.items()
    assert (good.mark, bad.mark, good.labels) == (True, False, ())
    (start, stop), *others = good.trained
    assert not others, "the mark is of the last answer alone"
    assert tokenizer.decode(good.ids[start:stop]) == "Enough<|im_end|>"
    _, rows = read(tmp_path, labelled(["a", "b"], ["b"], []))
    made = tokenise(using, rows, "turns")
    made.save(tmp_path / "part.npz")
    again = TokenTable.load(tmp_path / "part.npz")
    assert again is not None
    assert [(row.mark, row.labels) for row in again.items()] == [(None, ("a", "b")), (None, ("b",)), (None, ())]


@pytest.mark.parametrize(
    ("cells", "separator"),
    [
        (["action", "comedy"], ""),
        (["action|comedy", "comedy", "drama|action", "drama"], "|"),
        (["a, b", "b,c", "c, a"], ","),
        (["Paris, France", "Lyon, France", "Bonn, Germany"] * 9, ""),
        (["Sci/Tech", "Business; and more", "Sci/Tech"], ""),
        ([["a"], [], None], "list"),
        (['["a", "b"]', "[]"], "list"),
    ],
)
def test_several_labels_are_told_apart_only_where_that_is_plain(cells: list[Any], separator: str) -> None:
    assert separator_of(cells) == separator


@pytest.mark.parametrize(
    ("cells", "kind", "counts", "labels", "answers"),
    [
        ([1, 0, 1], "one label", {"1": 2, "0": 1}, [("1",), ("0",), ("1",)], ["1", "0", "1"]),
        ([1.0, True, " x "], "one label", {"1": 1, "true": 1, "x": 1}, [("1",), ("true",), ("x",)], ["1", "true", "x"]),
        (["a, b", "b,c", "c, a"], "several labels", {"a": 2, "b": 2, "c": 2}, [("a", "b"), ("b", "c"), ("c", "a")],
         ["a, b", "b,c", "c, a"]),
        ([["a", 2], [], ["a"]], "several labels", {"a": 2, "2": 1}, [("a", "2"), (), ("a",)], ["a, 2", "none", "a"]),
        ([["a", "a ", "b", ""], '["b", ""]', [""]], "several labels", {"b": 2, "a": 1}, [("a", "b"), ("b",), ()],
         ["a, b", "b", "none"]),
        (["0.5", 2, 1e-3], "number", {}, [("0.5",), ("2",), ("0.001",)], ["0.5", "2", "0.001"]),
        (list(range(21)), "number", dict.fromkeys(map(str, range(21)), 1), [(str(n),) for n in range(21)],
         [str(n) for n in range(21)]),
        ([*range(30), *range(31)], "one label", {str(n): 1 + (n < 30) for n in range(31)},
         [(str(n),) for n in (*range(30), *range(31))], [str(n) for n in (*range(30), *range(31))]),
    ],
)  # fmt: skip
def test_labels_are_read_counted_and_taught_to_others_as_answers(
    tmp_path: Path, cells: list[Any], kind: str, counts: dict[str, int], labels: list[Any], answers: list[str]
) -> None:
    report, examples = read(tmp_path, labelled(*cells))
    assert report.labels is not None
    assert (report.labels.kind, report.labels.counts) == (kind, counts)
    assert [row.labels for row in examples] == labels
    assert [row.messages[-1].content for row in examples] == answers
    assert [row.texts for row in examples] == [(f"text {number}",) for number in range(len(cells))]


def test_pairs_of_sentences_have_one_label(tmp_path: Path) -> None:
    _, (one, alone) = read(
        tmp_path, [{"sentence1": "a", "sentence2": "b", "label": 1}, {"sentence1": "c", "sentence2": "", "label": 0}]
    )
    assert (one.messages[0].content, one.texts, alone.texts) == ("a\n\nb", ("a", "b"), ("c",))


@pytest.mark.parametrize(
    ("cells", "fault"),
    [
        (["a", "b", "b", "c"], "found 2 seen once: 'a', 'c'"),
        (["a", "a"], "found 'a' in every row"),
        ([str(number // 2) for number in range(2002)], "at most 1,000 different labels in rows.jsonl, found 1,001"),
    ],
)
def test_labels_that_cannot_be_learned_are_refused(tmp_path: Path, cells: list[str], fault: str) -> None:
    report, _ = read(tmp_path, labelled(*cells))
    with pytest.raises(DataError, match=fault) as caught:
        outputs_of(RunConfig(method="classify"), report)
    assert "SFT" in caught.value.hint
    assert report_for(report, "sft").usable == len(cells)
    assert report.labels is not None
    assert len(report.labels.counts) <= 1_000


@pytest.mark.parametrize(
    ("cells", "taken"),
    [
        ([1, 1, 2, 2, 5], {"regression"}),
        ([*range(25), *range(25)], {"regression", "single_label_classification", "multi_label_classification"}),
        ([*range(40), *range(20), *range(20, 40)],
         {"regression", "single_label_classification", "multi_label_classification"}),
        ([*range(25)], {"regression"}),
        ([0.5, 0.5, 1, 1], {"regression"}),
        (["a", "a", "b", "b"], {"single_label_classification", "multi_label_classification"}),
        ([[], []], set()),
    ],
)  # fmt: skip
def test_whole_numbers_are_learned_as_numbers_or_as_classes(tmp_path: Path, cells: list[Any], taken: set[str]) -> None:
    """What classes need is asked of classes alone."""
    report, _ = read(tmp_path, labelled(*cells))
    found = set()
    for problem in get_args(Problem):
        with suppress(DataError):
            outputs_of(RunConfig(method="classify", train=TrainChoice(problem_type=problem)), report)
            found.add(problem)
    assert found == taken


def test_numbers_seen_once_are_classes_where_that_is_asked(tmp_path: Path) -> None:
    """A fifth of the values is seen once, so they are read as numbers; a person may know better, and is told which."""
    report, _ = read(tmp_path, labelled(*range(24), *range(18)))
    assert report.labels is not None
    assert (report.labels.kind, outputs_of(RunConfig(method="classify"), report)) == (
        "number", Outputs(("label",), "regression"),
    )  # fmt: skip
    asked = RunConfig(method="classify", train=TrainChoice(problem_type="single_label_classification"))
    with pytest.raises(DataError, match="found 6 seen once: '18'"):
        outputs_of(asked, report)


@pytest.mark.parametrize(
    "rows",
    [
        marked(True, False), marked("👍", "👎"), labelled("a", "b"), labelled(["a", "b"], []),
        labelled("a|b", "b|a", "a"), [{"sentence1": "a", "sentence2": "b", "label": 1}],
        [{**PAIR, "margin": 0.5}, PAIR],
    ],
)  # fmt: skip
def test_a_made_row_reads_back_with_its_mark_label_or_margin(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    before = list(read_examples(tmp_path / "rows.jsonl", DataChoice(), MARKED))
    read(tmp_path, list(map(as_row, before)))
    after = list(read_examples(tmp_path / "rows.jsonl", DataChoice(), MARKED))
    assert len(before) == len(rows)
    assert after == before


def test_a_mixture_keeps_marks_among_marked_rows_and_takes_good_ones_beside_others(tmp_path: Path) -> None:
    files = []
    for name, rows in (("marks", marked(True, False)), ("more", marked("bad")), ("chats", [{"messages": TURNS}])):
        (tmp_path / name).mkdir()
        report, _ = read(tmp_path / name, rows)
        found = read_examples(tmp_path / name / "rows.jsonl", DataChoice(), MARKED)
        files.append((report, str(examples_of(tmp_path / name / "examples.jsonl", list(found))), 1.0))
    total, rows_of = mixed_rows(parts_of(files[:2]), 1)
    assert (total, sorted(row["label"] for row in rows_of)) == (3, ["bad", "false", "true"])
    total, rows_of = mixed_rows(parts_of([files[0], files[2]]), 1)
    assert (total, [row.get("label") for row in rows_of]) == (2, [None, None])


def test_real_files_have_their_marks_and_labels(shared_data: Path) -> None:
    assert read_report(shared_data / "kto_300.json", DataChoice()).marks.rows == (150, 150)  # type: ignore[union-attr]
    labels = read_report(shared_data / "sst2_dev.tsv", DataChoice()).labels
    assert labels is not None
    assert (labels.kind, labels.counts) == ("one label", {"1": 444, "0": 428})


def test_a_text_with_a_label_is_encoded_as_the_tokenizer_itself_does(tmp_path: Path, tokenizer: Any) -> None:
    rows = [
        {"sentence1": "A fine film.", "sentence2": "", "label": 1},
        {"sentence1": "A", "sentence2": "B", "label": 0},
    ]
    report, examples = read(tmp_path, rows)
    reads = METHODS[LABELLED].reads(report.layout)
    using = renderer(tokenizer, settled(DataChoice(), report.layout, report.mapping, reads))
    table = tokenise(using, examples, reads)
    table.save(tmp_path / "part.npz")
    again = TokenTable.load(tmp_path / "part.npz")
    assert again is not None
    for row, texts in zip(again.items(), (("A fine film.",), ("A\n\nB",)), strict=True):
        assert list(row.ids) == tokenizer(*texts)["input_ids"]
        assert (row.trained, row.classed) == ((), True)
    assert [row.labels for row in again.items()] == [("1",), ("0",)]
    assert Measures.of([again]).rows(4)[1] == [1, 1]
    (shown,) = shown_rows(using, encoded_sides(using, examples[0], reads), 3)
    assert (shown.labels, shown.tokens, shown.cut_tokens) == (
        ("1",),
        len(again.item(0).ids),
        len(again.item(0).ids) - 3,
    )
    assert "A fine film." in "".join(span.text for span in shown.spans)


def test_a_cut_text_keeps_the_end_token_of_its_tokenizer() -> None:
    ((row, _, stop),) = Encoded(1, "", (101, 7, 8, 9, 102), (), None, classed=True, texts=((1, 4),)).cut(4)
    assert (row.input_ids, row.labels, stop) == ((101, 7, 8, 102), (-100,) * 4, 4)
    ((row, _, _),) = Encoded(1, "", (101, 7, 8, 9), (), None, classed=True).cut(3)
    assert row.input_ids == (101, 7, 8)


@pytest.mark.parametrize(
    "ends",
    [
        processors.BertProcessing(("</s>", 1), ("<s>", 0)), processors.RobertaProcessing(("</s>", 1), ("<s>", 0)),
        processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]),
        processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B:1", special_tokens=[("<s>", 0)]),
    ],
    ids=["bert", "roberta", "t5", "llama"],
)  # fmt: skip
@pytest.mark.parametrize("side", ["right", "left"])
def test_texts_are_cut_as_the_tokenizer_itself_cuts_them(tmp_path: Path, ends: Any, side: str) -> None:
    """The longer one first, at the tokenizer's side, so that a long first text leaves room for the second; kept on disk
    too."""
    words = Tokenizer(models.WordLevel({"<s>": 0, "</s>": 1, "[UNK]": 2, **{str(n): n for n in range(3, 30)}}, "[UNK]"))
    words.pre_tokenizer, words.post_processor = pre_tokenizers.Whitespace(), ends
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, bos_token="<s>", eos_token="</s>", unk_token="[UNK]", truncation_side=side
    )
    texts = [
        (" ".join(map(str, range(3, 3 + first))), " ".join(map(str, range(20, 20 + second))))
        for first in (1, 2, 5, 9) for second in (0, 1, 2, 5, 9)
    ]  # fmt: skip
    examples = [
        Example(row=row, messages=(Message(role="user", content=f"{one}\n\n{two}" if two else one),
                Message(role="assistant", content="y")), label="y", labels=("y",), second=two)
        for row, (one, two) in enumerate(texts, 1)
    ]  # fmt: skip
    made = TableMaker()
    made.add(*encode_labelled(tokenizer, examples))
    made.table().save(tmp_path / "part.npz")
    again = TokenTable.load(tmp_path / "part.npz")
    assert again is not None
    for row, (first, second) in zip(again.items(), texts, strict=True):
        given = (first, second) if second else (first,)
        own = tokenizer.num_special_tokens_to_add(pair=bool(second))
        for limit in range(own + 1, 26):
            ((cut, _, stop),) = row.cut(limit)
            assert list(cut.input_ids) == tokenizer(*given, truncation=True, max_length=limit)["input_ids"], limit
            assert stop == len(cut.labels) == len(cut.input_ids)
            shown = shown_labelled(tokenizer, row, limit)
            assert shown.cut_tokens == len(row.ids) - stop == sum(s.tokens for s in shown.spans if s.kind == "cut")
