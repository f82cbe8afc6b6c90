"""Data sets of the hub, through the real ``datasets`` against a hub of our own: what is taken, and what is said."""

import datetime
import decimal
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hub_stand_in import COMMIT, TOKEN, HubStandIn

from core.contract.config import DataChoice
from core.contract.errors import DataError
from core.data.files.made import origin_of
from core.data.service.data_service import DataService
from core.data.service.doctor import MAKER
from core.machine.children.pipe import Child
from core.machine.locations import Locations

CARD = """---
configs:
- config_name: chat
  data_files:
  - split: train
    path: chat/train.jsonl
  - split: test
    path: chat/test.jsonl
- config_name: plain
  data_files: plain.jsonl
---
Rows.
"""
TEXT = '{"text": "x"}\n'


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubStandIn]:
    """A hub of data sets good and bad, which this process and its children ask."""
    root = tmp_path_factory.mktemp("hub")

    def folder(name: str, files: dict[str, str]) -> Path:
        for file, text in files.items():
            (root / name / file).parent.mkdir(parents=True, exist_ok=True)
            (root / name / file).write_text(text)
        return root / name

    def rows(split: str, count: int) -> str:
        made = [{"prompt": f"{split} {number} später 🦜", "completion": "yes"} for number in range(count)]
        return "".join(json.dumps(row) + "\n" for row in made)

    chats = {"chat/train.jsonl": rows("train", 300), "chat/test.jsonl": rows("test", 5), "plain.jsonl": TEXT}
    served = folder("served", {"README.md": CARD, **chats})
    (root / "secret.jsonl").write_text(TEXT)
    card = f"---\nconfigs:\n- config_name: default\n  data_files: {root / 'secret.jsonl'}\n---\n"
    script = f"open({str(root / 'scripted' / 'ran')!r}, 'w')"
    table = {
        "text": ["one", "two"],
        "day": [datetime.date(2026, 11, 21), None],
        "price": [decimal.Decimal("1.10"), None],
        "picture": [b"\x89PNG", b"\x89PNG"],
    }
    typed = folder("typed", {"README.md": ""})
    pq.write_table(pa.table(table), typed / "rows.parquet")
    folders = {
        "a/rows": served, "a/gated": served, "a/slow": served, "a/typed": typed,
        "a/elsewhere": folder("elsewhere", {"README.md": card}),
        "a/scripted": folder("scripted", {"scripted.py": script, "rows.jsonl": TEXT}),
    }  # fmt: skip
    with HubStandIn(folders) as made, pytest.MonkeyPatch.context() as patch:
        made.gated.add("a/gated")
        for name, value in made.environment(tmp_path_factory.mktemp("hf")).items():
            patch.setenv(name, value)
        yield made


@pytest.fixture(scope="module")
def maker(hub: HubStandIn) -> Iterator[Child]:
    """One maker for many questions: its libraries take seconds to import."""
    made = Child("core.data.service.work_child", "maker", MAKER)
    yield made
    made.close()


def request(home: Path, name: str, subset: str = "", split: str = "", rows_at_most: int = 0) -> dict[str, Any]:
    asked = {"name": name, "subset": subset, "split": split, "rows_at_most": rows_at_most}
    return {"do": "hub", "home": str(home), **asked}


def test_a_subset_a_split_and_some_rows(maker: Child, tmp_path: Path, hub: HubStandIn) -> None:
    told: list[Any] = []
    found = maker.ask(request(tmp_path, "a/rows", "chat", "train", 20), "a/rows", None, told.append)
    path = Path(found["path"])
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert rows == [{"prompt": f"train {number} später 🦜", "completion": "yes"} for number in range(20)]
    assert path.name == "a_rows.jsonl"
    assert path.parent.name == found["sha256"]
    origin = origin_of(path)
    assert origin["revision"] == COMMIT
    assert (origin["name"], origin["subset"], origin["split"], origin["rows"]) == ("a/rows", "chat", "train", 20)
    assert told[-1] == [20, 20, 20]
    assert not any("telemetry" in line or "dummy" in line for line in hub.requests)


def test_values_that_json_does_not_know_are_told(maker: Child, tmp_path: Path) -> None:
    path = Path(maker.ask(request(tmp_path, "a/typed"))["path"])
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert rows == [
        {"text": "one", "day": "2026-11-21", "price": "1.10"},
        {"text": "two", "day": None, "price": None},
    ]
    origin = origin_of(path)
    assert origin["written_as_text"] == {"day": 1, "price": 1}
    assert origin["left_out"] == {"picture": 2}


@pytest.mark.parametrize(
    ("name", "subset", "split", "said"),
    [
        ("a/rows", "", "", "It has: chat, plain"),
        ("a/rows", "none", "", "'none', which is none. It has: chat, plain"),
        ("a/rows", "chat", "dev", "'dev', which is none. It has: train, test"),
        ("a/absent", "", "", "found none (or it is private)"),
        ("a/gated", "chat", "", "accept"),
        ("a/elsewhere", "", "", "elsewhere"),
        ("a/scripted", "", "", "cannot be read as a table"),
        ("json", "", "", "owner/name"),
        ("../../etc", "", "", "owner/name"),
    ],
)
def test_what_cannot_be_given_is_one_line(
    maker: Child, tmp_path: Path, hub: HubStandIn, name: str, subset: str, split: str, said: str
) -> None:
    with pytest.raises(DataError) as caught:
        maker.ask(request(tmp_path, name, subset, split), name)
    assert said.lower() in str(caught.value).lower()
    assert "\n" not in str(caught.value)
    assert TOKEN not in str(caught.value)
    assert not (tmp_path / "data").exists() or list((tmp_path / "data").iterdir()) == []
    assert not list(hub.models["a/scripted"].glob("ran"))


@pytest.mark.slow
def test_a_token_opens_what_is_gated_and_is_written_nowhere(
    hub: HubStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    service = DataService(Locations(tmp_path))
    kept = service.from_hub("a/gated", "chat", "test", 0)
    assert service.report(kept.path, DataChoice()).usable == 5
    service.close()
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or TOKEN.encode() not in file.read_bytes()


@pytest.mark.slow
def test_an_unreachable_hub_is_one_line(hub: HubStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value, said in (("HF_ENDPOINT", "http://127.0.0.1:9", "127.0.0.1:9"), ("HF_HUB_OFFLINE", "1", "OFFLINE")):
        monkeypatch.setenv(name, value)
        with pytest.raises(DataError) as caught:
            DataService(Locations(tmp_path)).from_hub("a/rows", "chat", "", 0)
        assert said in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_silent_hub_can_be_left(tmp_path: Path, hub: HubStandIn) -> None:
    hub.silent.add("a/slow")
    stop = threading.Event()
    left: list[float] = []

    def ask() -> None:
        with pytest.raises(DataError) as caught:
            DataService(Locations(tmp_path)).from_hub("a/slow", "chat", "", 0, lambda *_: None, stop.is_set)
        assert caught.value.code == "data.stopped"
        left.append(time.monotonic())

    thread = threading.Thread(target=ask)
    thread.start()
    while not any("a/slow" in line for line in hub.requests):
        time.sleep(0.05)
    asked = time.monotonic()
    stop.set()
    thread.join(30)
    assert left[0] - asked < 1
    assert not (tmp_path / "data").exists()
