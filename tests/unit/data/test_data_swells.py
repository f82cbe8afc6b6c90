"""Small files that become gigabytes as they are read: they show progress, can be stopped, and end at a bound."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.contract.config import DataChoice
from core.contract.errors import DataError
from core.data.files import disk_room
from core.data.files.disk_room import Room, forget_oldest
from core.data.files.keep import keep_blocks
from core.data.service import reader_child
from core.data.service.data_service import DataService
from core.machine.locations import Locations


@pytest.fixture(scope="module")
def bomb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hundred thousand rows of one text of 96 kB, which a dictionary holds once: 19 GB out of a kilobyte or two."""
    path = tmp_path_factory.mktemp("bomb") / "rows.parquet"
    rows, texts = pa.array([0] * 200_000, pa.int32()), pa.array(["x" * 96_000])
    table = pa.table({"text": pa.DictionaryArray.from_arrays(rows, texts)})
    pq.write_table(table, path, compression="zstd", compression_level=19)
    assert path.stat().st_size < 8_000
    return path


@pytest.fixture
def service(tmp_path: Path) -> Iterator[DataService]:
    made = DataService(Locations(tmp_path / "home").make(), guarded=True)
    yield made
    made.close()


def lying(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_it_is_shown_and_read_with_progress_and_can_be_stopped(service: DataService, bomb: Path) -> None:
    start = time.monotonic()
    look = service.first_look(bomb, DataChoice(), 1.0)
    assert not look.complete
    assert time.monotonic() - start < 5
    told: list[tuple[int, ...]] = []
    with pytest.raises(DataError) as caught:
        service.check(bomb, DataChoice(), lambda *so_far: told.append(so_far), lambda: len(told) > 2)
    assert caught.value.code == "data.stopped"
    assert 0 < told[-1][0] < told[-1][1], "how far, of how much"
    assert told[-1][2] > told[0][2] > 0
    assert not list(service._locations.cache.rglob("*.part"))


def test_nothing_begins_and_nothing_goes_on_after_the_end(service: DataService, bomb: Path) -> None:
    found: list[str] = []

    def work() -> None:
        try:
            service.report(bomb, DataChoice())
        except DataError as error:
            found.append(error.code)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    while service.reader.pid is None:
        time.sleep(0.01)
    time.sleep(0.5)
    start = time.monotonic()
    service.close()
    for thread in threads:
        thread.join(5)
    assert time.monotonic() - start < 3
    assert found == ["data.stopped"] * 3
    assert not list(service._locations.cache.rglob("*.part"))
    for ask in (
        lambda: service.report(bomb, DataChoice()),
        lambda: service.from_hub("a/b", "", "train", 1),
        lambda: service.columns(bomb),
    ):
        with pytest.raises(DataError, match="stopped"):
            ask()
    service.warm()
    assert (service.reader.pid, service.renderer.pid) == (None, None)


def test_it_ends_at_a_bound_and_leaves_nothing(bomb: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_room, "LEAST_BYTES", 30 << 20)
    request: dict[str, Any] = {"path": str(bomb), "cache": str(tmp_path / "cache"), "choice": {}, "seconds": 0.2}
    with pytest.raises(DataError, match="swells as it is read") as caught:
        all(not reader_child.check({**request, "begun": begun})["done"] for begun in (number > 0 for number in count()))
    assert caught.value.code == "data.swells"
    assert lying(tmp_path / "cache") == 0


def test_a_disk_that_is_nearly_full_is_left_to_the_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_room, "SPARE_BYTES", 1 << 60)
    with pytest.raises(OSError, match="what runs need"):
        Room(tmp_path).take(64 << 20)
    Room(tmp_path).take(1 << 20)  # little things always go
    blocks = (b"x" * (1 << 20) for _ in range(1000))
    with pytest.raises(DataError, match="what runs need"):
        keep_blocks(blocks, "mixture.jsonl", Locations(tmp_path / "home"), "a mixture")
    assert lying(tmp_path) == 0


def test_what_was_used_longest_ago_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_room, "CACHE_BYTES", 25)
    monkeypatch.setattr(disk_room.time, "time", lambda: 10_000.0)
    pairs = []
    for number, used in enumerate((1.0, 3.0, 2.0, 9_990.0)):
        said, large = tmp_path / f"report-{number}.json", tmp_path / f"examples-{number}.jsonl"
        said.write_text("{}")
        large.write_text("x" * 10)
        os.utime(said, (used, used))
        pairs.append((said, large))
    forget_oldest(pairs)
    assert [said.exists() for said, _ in pairs] == [False, True, False, True]
    assert [large.exists() for _, large in pairs] == [False, True, False, True]
