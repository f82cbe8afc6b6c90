"""The doctor as the window asks it: findings with their rows, mended data sets, and one split for all who deal rows."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from whole_rows import read_report

from core.contract.config import DataChoice, RunConfig
from core.contract.data import Checkup, Finding
from core.contract.errors import DataError
from core.contract.rows import RowTable, RowWish
from core.data.deal.split import places_of, split_rows
from core.data.doctor.fixes import Fixing
from core.data.doctor.found_rows import rows_found
from core.data.doctor.split_groups import KeptGroups, kept_groups
from core.data.files.made import as_row, origin_of, write_rows
from core.data.read.examples import read_examples
from core.data.service.checked import checked
from core.data.service.data_service import DataService
from core.data.service.doctor import Doctor
from core.machine.locations import Locations
from studio.figures.held_out import HeldOut

LONG = "the answer is here and there and everywhere that anybody cared to look for it in those days number"


@pytest.fixture
def service(warm_service: DataService) -> DataService:
    return warm_service


@pytest.fixture
def locations(service: DataService) -> Locations:
    return service._locations


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Row 31 cannot be used; 12 and 25 repeat 2, 7 has an empty answer in it, 9 a zero-width space, 20 is long."""
    table = [
        {"messages": [said("user", f"question {n}"), said("assistant", f"{LONG} {n * 7919} {n}")]} for n in range(1, 31)
    ]
    table[11] = table[24] = table[1]
    table[6]["messages"] += [said("user", "and?"), said("assistant", "")]
    table[8]["messages"][0]["content"] = "question\u200b 9"
    table[19]["messages"][0]["content"] = "question " * 200
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, [*table, {"messages": 5}])))
    return path


def said(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def checkup(
    service: DataService, path: Path, folder: Path | None = None, share: float = 0.1,
    told: Any = lambda *_: None, cancelled: Any = lambda: False,
) -> Checkup:  # fmt: skip
    held_out = (share, 200, 1)
    return service.checkup(path, DataChoice(), folder, 128, held_out, on_progress=told, cancelled=cancelled)


def codes(*asked: Any, **more: Any) -> dict[str, Finding]:
    return {finding.code: finding for finding in checkup(*asked, **more).findings}


def test_findings_and_their_rows(service: DataService, rows: Path, tokenizer_folder: Path) -> None:
    found = codes(service, rows, tokenizer_folder)
    assert found["exact_duplicates"].rows == (12, 25)
    assert found["empty_answers"].rows == (7,)
    assert found["non_printing"].rows == (9,)
    assert found["answer_cut"].rows == (20,)
    assert 20 in found["long_rows"].rows
    shown = service.preview(rows, DataChoice(), tokenizer_folder, 128, rows=found["exact_duplicates"].rows)
    assert [row.row for row in shown.rows] == [12, 25]


def test_without_a_tokenizer_or_with_a_broken_one_texts_are_examined(
    service: DataService, rows: Path, tmp_path: Path
) -> None:
    for folder in (None, tmp_path):
        found = codes(service, rows, folder)
        assert "exact_duplicates" in found
        assert not found.keys() & {"long_rows", "answer_cut"}


def test_raw_text_is_never_cut_and_pairs_are_measured_by_their_longer_side(
    service: DataService, tmp_path: Path, tokenizer_folder: Path
) -> None:
    book, pairs = tmp_path / "book.txt", tmp_path / "pairs.jsonl"
    book.write_text(f"{LONG} " * 100)
    assert codes(service, book, tokenizer_folder) == {}
    table = [
        {"prompt": f"q {n}", "chosen": f"yes {n}", "rejected": f"no {n} " + "no " * 200 * (n == 3)} for n in range(6)
    ]
    pairs.write_text("\n".join(map(json.dumps, table)))
    found = codes(service, pairs, tokenizer_folder)
    assert found["long_rows"].rows == (4,)
    assert "answer_cut" not in found


def test_it_tells_how_far_it_is_and_stops_when_asked(service: DataService, rows: Path, tmp_path: Path) -> None:
    path = tmp_path / "many.jsonl"
    path.write_text("\n".join(json.dumps({"text": f"{LONG} {n} " * 8}) for n in range(2500)))
    told: list[tuple[int, int]] = []

    def tell(done: int, total: int) -> None:
        told.append((done, total))

    assert checkup(service, path, told=tell).rows == 2500
    assert told == sorted(told)
    assert told[-1][1] == 2500
    told.clear()
    with pytest.raises(DataError) as caught:
        checkup(service, path, told=tell, cancelled=lambda: bool(told))
    assert caught.value.code == "data.stopped"
    assert told[-1][0] < 2500
    assert checkup(service, rows).rows == 30


def test_the_table_finds_all_rows_of_a_finding(service: DataService, tmp_path: Path) -> None:
    """Only the first five hundred were marked and filtered."""
    path = tmp_path / "many unseen.jsonl"
    with path.open("w") as stream:
        for n in range(1, 1501):
            answer = f"Answer\u200b {n}." if n % 2 else f"Answer {n}, as it is."
            stream.write(json.dumps({"prompt": f"Question {n}?", "completion": answer}) + "\n")
    told = checkup(service, path)
    finding = next(one for one in told.findings if one.code == "non_printing")
    assert (finding.count, len(finding.rows)) == (750, 500)

    def found(**wish: Any) -> RowTable:
        return service.table(path, DataChoice(), RowWish(finding="non_printing", **wish), checkup=told)

    assert found().matching == 750
    last = found(first=740, count=60).rows
    assert [row.row for row in last] == list(range(1481, 1500, 2))
    assert all("non_printing" in row.findings for row in last)
    first = service.table(path, DataChoice(), RowWish(order="findings", first=740, count=1), checkup=told).rows[0]
    assert first.row == 1481
    Path(finding.kept).unlink()
    assert found(first=0, count=1).rows[0].row == 1, "what is listed is still known"
    assert [*rows_found((3, 1), "")] == [1, 3]


def test_fixing_makes_a_new_data_set_and_leaves_the_file_alone(
    service: DataService, rows: Path, request: pytest.FixtureRequest
) -> None:
    before = rows.read_bytes()
    fixes: list[tuple[str, Sequence[int]]] = [("exact_duplicates", ()), ("empty_answers", ()), ("non_printing", ())]
    kept = service.fix(rows, DataChoice(), fixes)
    assert rows.read_bytes() == before
    assert kept.name == "rows-mended.jsonl"
    mended, whole = list(read_examples(kept.path, DataChoice())), list(read_examples(rows, DataChoice()))
    left_out = {7, 12, 25}
    expected = [example for example in whole if example.row not in left_out]
    texts = [[turn.content for turn in example.messages] for example in mended]
    assert texts == [[turn.content.replace("\u200b", "") for turn in example.messages] for example in expected]
    origin = origin_of(kept.path)
    told = (origin["made"], origin["from"]["name"], origin["rows_read"], origin["rows"])
    assert told == ("mended", "rows.jsonl", 30, 27)
    assert {done["finding"]: done["rows"] for done in origin["done"]} == {
        "exact_duplicates": [12, 25], "empty_answers": [7], "non_printing": [9],
    }  # fmt: skip
    assert checkup(service, kept.path).findings == ()
    request.getfixturevalue("makes_here")  # the first went through a child
    assert service.fix(rows, DataChoice(), fixes) == kept
    assert service.fix(kept.path, DataChoice(), fixes) == kept  # nothing more to do: its origin is still told
    assert origin_of(kept.path) == origin
    # Only the rows named.
    kept = service.fix(rows, DataChoice(), [("exact_duplicates", (25,))])
    assert origin_of(kept.path)["done"][0]["rows"] == [25]
    assert origin_of(kept.path)["rows"] == 29


@pytest.mark.parametrize("fixes", [[], [("near_duplicates", ())], [("exact_duplicates", ()), ("markup", (3,))]])
def test_what_has_no_safe_fix_is_refused(fixes: list[tuple[str, Sequence[int]]]) -> None:
    with pytest.raises(DataError, match="safe fix"):
        Fixing(fixes)


UNSEEN = "\u200b\ufeff"


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ({"text": "seen"}, [{"text": UNSEEN}]),
        ({"prompt": "q", "completion": f"{UNSEEN}seen"}, [{"prompt": "q", "completion": UNSEEN}]),
        (
            {"prompt": "q", "chosen": f"seen{UNSEEN}", "rejected": "no"},
            [
                {"prompt": "q", "chosen": UNSEEN, "rejected": "no"},
                {"prompt": "q", "chosen": "yes", "rejected": UNSEEN},
                {"prompt": "q", "chosen": "yes", "rejected": f"{UNSEEN}yes"},
            ],
        ),
    ],
)
def test_a_row_that_only_nobody_sees_goes(tmp_path: Path, good: dict[str, str], bad: list[dict[str, str]]) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in (good, *bad)))
    rows = list(read_examples(path, DataChoice()))
    assert len(rows) == 1 + len(bad)
    fixing = Fixing([("non_printing", ())])
    made = write_rows(map(as_row, fixing.rows(rows)), "mended", {}, Locations(tmp_path / "home").make())
    report = read_report(made.path, DataChoice())
    assert (report.rows, report.usable) == (1, 1)
    assert fixing.done == {"non_printing": [row.row for row in rows if row.row > 1 or UNSEEN in "".join(good.values())]}


def test_window_and_run_make_the_same_groups(service: DataService, rows: Path, tmp_path: Path) -> None:
    """The window and a run, each in a folder of its own: the same groups, hence the same split."""
    choice = DataChoice(path=str(rows), eval_fraction=0.2)
    elsewhere = Locations(tmp_path / "elsewhere").make()
    doctor = Doctor(elsewhere)
    doctor.child = service._doctor.child
    alone = doctor.groups(checked(rows, choice, elsewhere), choice)
    assert alone.rows == ((2, 12, 25),)
    assert service.split_groups(rows, choice) == ((1, 11, 24),)
    held_out = HeldOut(service)._split(choice.model_dump_json(), RunConfig().train.seed, "sft")
    numbers = [example.row for example in read_examples(rows, choice)]
    groups = places_of(numbers, alone.rows)
    assert held_out == split_rows(30, choice, RunConfig().train.seed, groups)[1]
    assert service.split_groups(rows, choice.model_copy(update={"eval_fraction": 0.0})) == ()


def test_no_held_out_row_is_trained_on_in_other_words(service: DataService, tmp_path: Path) -> None:
    path = tmp_path / "twice.jsonl"
    texts = [f"{LONG} {n} {n * 7919} {n * 104729} word{n} thing{n} place{n}" for n in range(40)]
    path.write_text("\n".join(json.dumps({"prompt": f"ask {n // 2}", "completion": texts[n // 2]}) for n in range(80)))
    choice = DataChoice(eval_fraction=0.25)
    groups = service.split_groups(path, choice)
    training, held = split_rows(80, choice, 3, groups)
    assert len(held) == 20
    assert not {row // 2 for row in training} & {row // 2 for row in held}
    assert codes(service, path, share=0.25)["leakage"].level == "note"
    path.write_text("\n".join(json.dumps({"prompt": "the same", "completion": LONG}) for _ in range(20)))
    same = codes(service, path)["leakage"]
    assert (same.level, same.count) == ("warning", 2), "rows that are all alike cannot be kept apart"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"places": [[1]]}', '{"rows": [["a"]]}'])
def test_torn_groups_are_found_again(tmp_path: Path, content: str) -> None:
    place = tmp_path / "groups.json"
    assert kept_groups(place) is None
    place.write_text(content)
    assert kept_groups(place) is None
    KeptGroups(((1, 2),)).save(place)
    assert kept_groups(place) == KeptGroups(((1, 2),))
    place.write_text(place.read_text().replace("[[1, 2]]", "[[1, 3]]"))
    assert kept_groups(place) is None


@pytest.mark.usefixtures("makes_here")
def test_equal_pairs_are_found_shown_and_left_out(service: DataService, tokenizer_folder: Path, tmp_path: Path) -> None:
    pairs = [{"prompt": f"ask {n}", "chosen": f"{LONG} {n}", "rejected": f"no {n}" * (n != 3)} for n in range(8)]
    pairs[3] |= {"rejected": pairs[3]["chosen"] + " "}
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(map(json.dumps, pairs)))
    finding = codes(service, path, tokenizer_folder)["equal_pairs"]
    assert (finding.rows, finding.fix) == ((4,), "drop_rows")
    ask = service.preview(path, DataChoice(), tokenizer_folder, 128, rows=finding.rows)
    assert ([row.row for row in ask.rows], ask.total) == ([4, 4], 1)
    assert service.preview(path, DataChoice(), tokenizer_folder, 128).total == 7
    assert service.facts(path, DataChoice(), tokenizer_folder, 128).rows == 7
    assert service.facts(path, DataChoice(), tokenizer_folder, 128, method="sft").rows == 8
    assert service.report(service.fix(path, DataChoice(), [("equal_pairs", ())]).path, DataChoice()).rows == 7


@pytest.mark.usefixtures("makes_here")
def test_labels_are_written_in_one_way_and_rare_ones_left_out(service: DataService, tmp_path: Path) -> None:
    labels = ["good"] * 6 + ["Good", "bad", "bad", "odd"]
    path = tmp_path / "labels.jsonl"
    rows = [{"text": f"this is number {n}", "label": label} for n, label in enumerate(labels)]
    path.write_text("\n".join(map(json.dumps, rows)))
    fixed = service.fix(path, DataChoice(), [("label_spellings", ()), ("rare_labels", ())])
    report = service.report(fixed.path, DataChoice())
    assert report.labels is not None
    assert report.labels.counts == {"good": 7, "bad": 2}
