"""What a run reads: the rows that the preview showed, out of the cache where they were tokenised before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.contract.config import RunConfig
from core.contract.data import Preview
from core.contract.errors import DataError
from core.data.render import load_tokenizer
from core.data.service import DataService
from core.data.token_cache import clear_cached, list_cached
from core.locations import Locations
from core.model.loading import ensure_padding
from core.train import reading
from core.train.orders import Leave, Orders
from core.train.passes import pad
from core.train.reading import AnyRows, RunData, read_data
from core.train.rows import PairRows, TextRows
from core.train.tell import Teller

HELD = {"data__eval_fraction": 0.0, "data__layout": "auto"}
"""Nothing is held out, so that every row is seen; the layout is recognised."""


def sides(rows: AnyRows) -> list[tuple[list[int], ...]]:
    """Every row as plain lists."""
    parts = (rows.ids, rows.labels) if isinstance(rows, TextRows) else (rows.prompts, rows.chosen, rows.rejected)
    return [tuple(part[row].tolist() for part in parts) for row in range(len(rows))]


@pytest.fixture
def read(said: Any, letters: Any) -> Any:
    def run(config: RunConfig) -> RunData:
        tell = Teller(said)
        tokenizer = ensure_padding(load_tokenizer(Path(config.model.name)))
        return read_data(config, tokenizer, tell, Orders(letters, tell))

    return run


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
    run_config: Any, said: Any, letters: Any, rows: Path, locations: Locations, monkeypatch: Any
) -> None:
    monkeypatch.setattr("core.data.token_cache.ROWS", 4)
    config = run_config(data__path=str(rows), **HELD)
    orders = Orders(letters, Teller(said))
    made = reading.tokenise

    def slow(*given: Any) -> Any:
        orders._leaving = "stop"
        return made(*given)

    monkeypatch.setattr(reading, "tokenise", slow)
    with pytest.raises(Leave):
        read_data(config, load_tokenizer(Path(config.model.name)), Teller(said), orders)
    assert [one.whole for one in list_cached(locations)] == [False]


def test_data_without_a_trained_token_says_why(run_config: Any, read: Any, rows: Path) -> None:
    with pytest.raises(DataError):
        read(run_config(data__path=str(rows), data__train_on="tool_calls", **HELD))


def test_padding_is_never_trained_even_where_it_is_the_end_token(run_config: Any, read: Any, rows: Path) -> None:
    import torch

    config = run_config(data__path=str(rows), **HELD)
    found = read(config).train
    tokenizer = ensure_padding(load_tokenizer(Path(config.model.name)))
    end = tokenizer.eos_token_id
    batch = pad(found, range(len(found)), end, torch.device("cpu"))
    lengths = [found.length(row) for row in range(len(found))]
    labels, ids = batch["labels"], batch["input_ids"]
    assert isinstance(labels, torch.Tensor)
    assert isinstance(ids, torch.Tensor)
    assert min(lengths) < max(lengths)
    for row, length in enumerate(lengths):
        assert set(labels[row, length:].tolist()) <= {-100}
        assert set(ids[row, length:].tolist()) <= {end}
        assert labels[row, :length].tolist() == found.labels[row].tolist()
