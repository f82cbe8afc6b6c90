"""What a run reads: the rows that the preview showed, out of the cache where they were tokenised before."""

import errno
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from children_here import ChildHere

from core.contract.data import Preview
from core.contract.errors import DataError
from core.data.render.chat_tokens import load_tokenizer
from core.data.service.data_service import DataService
from core.data.tokens.cache import clear_cached, list_cached
from core.machine.children import serve
from core.machine.locations import Locations
from core.train import reading
from core.train.channel import channel as channel_module
from core.train.channel.channel import Channel
from core.train.channel.command_queue import Leave
from core.train.step.batches import pad
from core.train.step.rows import PairRows, Rows, TextRows

HELD = {"data__eval_fraction": 0.0, "data__layout": "auto"}
"""Nothing is held out, so that every row is seen; the layout is recognised."""


def sides(rows: Rows) -> list[tuple[list[int], ...]]:
    """Every row as plain lists."""
    parts = (rows.ids, rows.labels) if isinstance(rows, TextRows) else (rows.prompts, rows.chosen, rows.rejected)
    return [tuple(part[row].tolist() for part in parts) for row in range(len(rows))]


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataService]:
    made = DataService(Locations(tmp_path_factory.mktemp("data home")).make())
    yield made
    made.close()


@pytest.fixture
def service(warm: DataService, monkeypatch: pytest.MonkeyPatch) -> DataService:
    """The data room, its children warm and its cache empty; runs find the same home."""
    monkeypatch.setenv("LUTHIER_HOME", str(warm._locations.home))
    clear_cached(warm._locations)
    return warm


@pytest.fixture
def locations(request: pytest.FixtureRequest, own_home: Path) -> Locations:
    """Of the service where there is one."""
    if "service" in request.fixturenames:
        return Locations.find(request.getfixturevalue("warm")._locations.home)
    return Locations.find(own_home).make()


def forbid(monkeypatch: pytest.MonkeyPatch) -> None:
    def again(*_: object) -> None:
        raise AssertionError("it was tokenised again")

    monkeypatch.setattr(reading, "tokenise", again)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    turns = [
        [
            {"role": "user", "content": f"the question {number} 🦜"},
            {"role": "assistant", "content": "One. " * (number % 7 + 1)},
            {"role": "user", "content": "And this?"},
            {"role": "assistant", "content": f"Two {number}"},
        ]
        for number in range(40)
    ]
    path.write_text("".join(json.dumps({"messages": row}) + "\n" for row in turns), encoding="utf-8")
    return path


def shown(page: Preview) -> list[tuple[int, list[bool]]]:
    """Of every row its number and whether each token within the limit is trained."""
    return [
        (row.row, [span.kind == "trained" for span in row.spans for _ in range(span.tokens) if span.kind != "cut"])
        for row in page.rows
    ]


@pytest.mark.parametrize("max_length", [50, 512])
@pytest.mark.parametrize("train_on", ["answers", "last_answer", "everything"])
def test_what_was_previewed_is_trained_out_of_the_cache(
    service: DataService, run_config: Any, read: Any, rows: Path, monkeypatch: Any, max_length: int, train_on: str
) -> None:
    config = run_config(data__path=str(rows), data__train_on=train_on, train__max_length=max_length, **HELD)
    folder, choice = Path(config.model.name), config.data
    before = service.preview(rows, choice, folder, max_length, limit=40)
    plain = read(config)  # tokenised by the run itself, in a home of its own
    facts = service.facts(rows, choice, folder, max_length)
    forbid(monkeypatch)
    kept = read(config)
    assert sides(kept.train) == sides(plain.train)
    after = service.preview(rows, choice, folder, max_length, limit=40)
    assert after == before
    trained = [(number, row) for number, row in shown(after) if any(row[1:])]
    assert (max(facts.lengths) > max_length) == (max_length == 50)
    assert [row for _, row in trained] == [[label != -100 for label in labels] for _, labels in sides(kept.train)]
    assert sum(facts.trained) == kept.trained_tokens == sum(sum(row[1:]) for _, row in trained)
    assert list_cached(service._locations)[0].whole


def test_what_the_studio_tokenised_a_run_does_not_tokenise_again(
    service: DataService, run_config: Any, read: Any, rows: Path, said: Any, locations: Locations, monkeypatch: Any
) -> None:
    config = run_config(data__path=str(rows), **HELD)
    facts = service.facts(rows, config.data, Path(config.model.name), config.train.max_length)
    (entry,) = list_cached(locations)
    assert (entry.file, entry.rows, entry.whole, entry.train_on) == ("rows.jsonl", 40, True, "answers")
    assert entry.tokens == sum(facts.lengths)
    forbid(monkeypatch)
    found = read(config)
    assert "Rows tokenised before" in [event.text for event in said.of("stage")]
    assert found.trained_tokens == sum(facts.trained)
    assert clear_cached(locations) == entry.bytes > 0
    assert list_cached(locations) == ()
    with pytest.raises(AssertionError, match="tokenised again"):
        read(config)


def test_pairs_go_through_the_cache_too(
    service: DataService, run_config: Any, read: Any, preferences: Path, monkeypatch: Any
) -> None:
    config = run_config(data__path=str(preferences), method="dpo", **HELD)
    first = read(config)
    forbid(monkeypatch)
    again = read(config)
    assert isinstance(again.train, PairRows)
    assert sides(again.train) == sides(first.train)
    page = service.preview(preferences, config.data, Path(config.model.name), 512, limit=24)
    counts = [row.trained_tokens for row in page.rows]
    answers = [len(part) for row in sides(again.train) for part in row[1:]]
    assert counts == answers
    facts = service.facts(preferences, config.data, Path(config.model.name), 512)
    assert facts.trained == tuple(sum(answers[place : place + 2]) for place in range(0, len(answers), 2))
    assert facts.lengths == again.facts.lengths


FORGETS = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content.split('</think>')[-1] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.mark.parametrize("side", ["chosen", "rejected"])
def test_a_pair_with_nothing_but_thoughts_is_left_out_alone(
    service: DataService, run_config: Any, read: Any, said: Any, tiny_model: Path, tmp_path: Path, side: str
) -> None:
    """A template that drops thoughts writes nothing of such an answer; the file's other rows stay as they are."""
    tokenizer = load_tokenizer(tiny_model)
    tokenizer.chat_template = FORGETS
    tokenizer.save_pretrained(tmp_path / "model")
    pairs = [{"prompt": f"Why {number}?", "chosen": f"So {number}", "rejected": "No"} for number in range(6)]
    values = {"model__name": str(tmp_path / "model"), "method": "dpo", **HELD}
    found = []
    for name, rows in (("all", [*pairs[:3], {**pairs[0], side: "<think>hm</think>"}, *pairs[3:]]), ("good", pairs)):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        config = run_config(data__path=str(path), **values)
        facts = service.facts(path, config.data, tmp_path / "model", 64)
        page = service.preview(path, config.data, tmp_path / "model", 64)
        found.append((facts, page, sides(read(config).train)))
    (facts, page, trained), (good_facts, good_page, good_trained) = found
    assert (facts.refused, facts.lengths, facts.trained) == (1, good_facts.lengths, good_facts.trained)
    assert [row.spans for row in page.rows] == [row.spans for row in good_page.rows]
    assert trained == good_trained
    left_out = f"writes the {side} answer, found one that leaves all of it out"
    for words in (
        facts.why,
        page.notes[-1],
        next(note.text for note in said.of("note") if note.code == "data.refused"),
    ):
        assert "row 4: " in words.lower()
        assert left_out in words


def test_pairs_under_sft_are_shown_and_trained_as_the_chosen_conversation(
    service: DataService, run_config: Any, read: Any, preferences: Path
) -> None:
    config = run_config(data__path=str(preferences), method="sft", **HELD)
    page = service.preview(preferences, config.data, Path(config.model.name), 512, limit=24, method="sft")
    assert {row.side for row in page.rows} == {""}
    assert [row for _, row in shown(page)] == [[label != -100 for label in row[1]] for row in sides(read(config).train)]


@pytest.mark.parametrize("harm", ["torn", "empty", "foreign", "no manifest", "pickled", "other arrays"])
def test_a_harmed_entry_is_made_again(run_config: Any, read: Any, rows: Path, locations: Locations, harm: str) -> None:
    config = run_config(data__path=str(rows), **HELD)
    whole = sides(read(config).train)
    (folder,) = (locations.cache / "tokens").iterdir()
    (part,) = folder.glob("part-*.npz")
    size = part.stat().st_size
    if harm == "torn":
        part.write_bytes(part.read_bytes()[: size // 2] + b"\0" * (size - size // 2))
    elif harm == "empty":
        part.write_bytes(b"")
    elif harm == "foreign":
        part.write_bytes(b"x" * size)
    elif harm == "no manifest":
        (folder / "MANIFEST.json").unlink()
    else:
        with np.load(part) as found:
            arrays = dict(found)
        ends = np.array([{}], object) if harm == "pickled" else arrays["ends"] + 10**6
        np.savez(part, **{**arrays, "ends": ends})
        manifest = json.loads((folder / "MANIFEST.json").read_text())
        manifest["parts"][part.name] = part.stat().st_size
        (folder / "MANIFEST.json").write_text(json.dumps(manifest))
    assert sides(read(config).train) == whole
    assert [one.whole for one in list_cached(locations)] == [True]
    assert sides(read(config).train) == whole


def test_a_run_that_cannot_keep_its_tokens_trains_all_the_same(
    run_config: Any, read: Any, rows: Path, locations: Locations
) -> None:
    (locations.cache / "tokens").write_text("a file where a folder should be")
    assert len(read(run_config(data__path=str(rows), **HELD)).train) == 40


def test_somebody_who_asks_to_stop_is_heard_between_parts(
    run_config: Any, read: Any, channel: Channel, rows: Path, locations: Locations, monkeypatch: Any
) -> None:
    monkeypatch.setattr("core.data.tokens.cache.ROWS", 4)
    made = reading.tokenise

    def slow(*given: Any) -> Any:
        channel.commands._leaving = "stop"
        return made(*given)

    monkeypatch.setattr(reading, "tokenise", slow)
    with pytest.raises(Leave):
        read(run_config(data__path=str(rows), **HELD))
    assert [one.whole for one in list_cached(locations)] == [False]


@pytest.mark.usefixtures("real_children")
def test_a_run_reads_the_file_behind_the_wall_and_not_twice(
    run_config: Any, read: Any, rows: Path, monkeypatch: Any, locations: Locations
) -> None:
    """In the worker's own process nothing but its bytes is looked at, for their hash."""

    def opened(*_: object) -> None:
        raise AssertionError("it was read in this process")

    monkeypatch.setattr("core.data.read.examples.open_source", opened)
    config = run_config(data__path=str(rows), **{**HELD, "data__eval_fraction": 0.2})
    first = read(config)
    assert (len(first.train), len(first.held_out)) == (32, 8)
    assert len(list((locations.cache / "data").glob("groups-*.json"))) == 1
    for place in ("core.data.service.checked.Child", "core.data.service.doctor.Child.ask"):
        monkeypatch.setattr(place, opened)
    clear_cached(locations)
    assert sides(read(config).train) == sides(first.train)


def test_padding_is_never_trained_even_where_it_is_the_end_token(run_config: Any, read: Any, rows: Path) -> None:
    config = run_config(data__path=str(rows), **HELD)
    found = read(config).train
    end = load_tokenizer(Path(config.model.name)).eos_token_id
    batch: dict[str, Any] = pad([found.sequences(row)[0] for row in range(len(found))], end, torch.device("cpu"))
    lengths = [found.length(row) for row in range(len(found))]
    assert min(lengths) < max(lengths)
    assert batch["attention_mask"].sum() == sum(lengths)
    for row, length in enumerate(lengths):
        assert set(batch["labels"][row, length:].tolist()) <= {-100}
        assert set(batch["input_ids"][row, length:].tolist()) <= {end}
        assert batch["labels"][row, :length].tolist() == found.labels[row].tolist()


def test_a_run_reads_no_file_of_the_root_folder(run_config: Any, read: Any, locations: Locations) -> None:
    locations.studio.write_text('{"secret": "s"}\n')
    with pytest.raises(DataError, match="outside of Luthier's folder"):
        read(run_config(data__path=str(locations.studio), data__columns={"text": "secret"}, data__layout="text"))


def nearly_full(monkeypatch: pytest.MonkeyPatch, times: int) -> list[str]:
    """The disk has no room so often for what each child writes; what they were asked to do until then."""
    asked: list[str] = []
    real = ChildHere.ask

    def refuse(_request: dict[str, Any]) -> None:
        raise OSError(errno.ENOSPC, "No space left but what runs need")

    def ask(self: ChildHere, request: dict[str, Any], *more: Any) -> Any:
        if request.get("begun"):  # a busy machine reads in several slices
            return real(self, request, *more)
        asked.append(request["do"])
        if asked.count(request["do"]) <= times:
            raise DataError.told_by(serve._handled(refuse, request)["error"])  # as it comes through the pipe
        return real(self, request, *more)

    monkeypatch.setattr(ChildHere, "ask", ask)
    monkeypatch.setattr(channel_module, "POLL_SECONDS", 0.01)
    return asked


def test_reading_waits_for_room_on_the_disk(
    run_config: Any, read: Any, said: Any, rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = nearly_full(monkeypatch, 2)
    found = read(run_config(data__path=str(rows), **{**HELD, "data__eval_fraction": 0.2}))
    assert asked == ["check"] * 3 + ["groups"] * 3
    assert (len(found.train), len(found.held_out)) == (32, 8)
    waits = [event.text for event in said.of("stage") if event.stage == "waiting"]
    assert "Room on the disk" in waits[0]
    assert "No space left but what runs need" in waits[0]


def test_whoever_waits_for_room_to_read_obeys(
    run_config: Any, read: Any, channel: Channel, rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = nearly_full(monkeypatch, 10**9)

    def wait(_seconds: float) -> None:
        if len(asked) == 3:
            channel.commands._leaving = "stop"
        channel.commands.check()

    monkeypatch.setattr(channel.commands, "wait", wait)
    with pytest.raises(Leave):
        read(run_config(data__path=str(rows), **HELD))
    assert asked == ["check"] * 3


def test_labels_that_no_held_out_row_has_are_said(read: Any, run_config: Any, said: Any, tmp_path: Path) -> None:
    """Else an empty line of the confusion matrix would look like a label that is never told right."""
    path = tmp_path / "labels.jsonl"
    labels = ["usual"] * 40 + ["rare"] * 2
    path.write_text("".join(json.dumps({"text": f"text {row}", "label": one}) + "\n" for row, one in enumerate(labels)))
    read(run_config(data__path=str(path), method="classify", data__eval_fraction=0.05))
    notes = [event.text for event in said.events if event.kind == "note" and event.code == "data.labels_apart"]
    assert notes == ["1 label has no held-out row (nothing is measured of that): 'rare'."]
