"""Large and hostile files through the real reader: there at once, read in slices, stopped at once, within limits."""

import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from waiting import until
from whole_rows import peak_bytes, read_report

from core.contract.config import DataChoice
from core.contract.data import DataReport
from core.contract.errors import DataError
from core.contract.rows import RowWish
from core.data.files import disk_room
from core.data.files.disk_room import Room, forget_oldest
from core.data.files.keep import keep_blocks
from core.data.service import reader_child
from core.data.service.data_service import DataService
from core.data.service.reader import READER
from core.machine.locations import Locations


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataService]:
    made = DataService(Locations(tmp_path_factory.mktemp("large home")).make())
    # Slices so short that a few megabytes are a large file, however quick the machine is.
    made._files.slice_seconds = made._files.look_seconds = 0.01
    # A machine at work reaches the limit of memory later than five seconds; that of time is tested with the pipe.
    made.reader._limits = replace(READER, seconds=18)
    yield made
    made.close()


@pytest.fixture(scope="module")
def middling(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three megabytes of chats; every thousandth row is broken."""
    path = tmp_path_factory.mktemp("middling") / "chats.jsonl"
    drawn = random.Random(4)
    words = ["".join(drawn.choices("abcdefghijklmnopqrstuvwxyz", k=drawn.randint(2, 9))) for _ in range(3000)]
    with path.open("w", encoding="utf-8") as stream:
        for number in range(1, 3001):
            asked, told = (" ".join(drawn.choices(words, k=count)) for count in (30, 110))
            turns = [{"role": "user", "content": asked}, {"role": "assistant", "content": f"{told} später 🦜"}]
            stream.write(json.dumps({"messages": None if number % 1000 == 500 else turns}) + "\n")
    return path


@pytest.fixture(scope="module")
def bomb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hundred thousand rows of one text of 96 kB, which a dictionary holds once: 19 GB out of a kilobyte or two."""
    path = tmp_path_factory.mktemp("bomb") / "rows.parquet"
    one_text(96_000, 200_000)(path)
    assert path.stat().st_size < 8_000
    return path


def unfinished(service: DataService) -> list[Path]:
    return list(service._locations.cache.rglob("*.part"))


def test_a_large_file_is_looked_at_and_then_checked(service: DataService, middling: Path) -> None:
    first = service.first_look(middling, DataChoice())
    assert (first.complete, first.layout) == (False, "messages")
    assert 200 <= first.rows < 1500
    assert service.first_look(middling, DataChoice()) == first
    told: list[tuple[int, int, int]] = []
    whole = service.check(middling, DataChoice(), lambda *so_far: told.append(so_far), lambda: False)
    assert whole == read_report(middling, DataChoice())
    assert (whole.rows, whole.usable) == (3000, 2997)
    assert [problem.row for problem in whole.problems] == [500, 1500, 2500]
    assert told == sorted(told)
    assert len({done for done, _, _ in told}) >= 3
    assert told[-1] == (whole.bytes, whole.bytes, whole.rows)
    assert service.first_look(middling, DataChoice()) == whole == service.report(middling, DataChoice())
    ends = service.examples(middling, DataChoice(), (0, whole.usable - 1))
    assert [example.row for example in ends] == [1, whole.rows]


def test_others_get_their_turn_between_the_slices(service: DataService, middling: Path, tmp_path: Path) -> None:
    small = tmp_path / "small.jsonl"
    small.write_text('{"text": "one"}\n{"text": "two"}\n')
    running, reports, waited = threading.Event(), [], []

    def check() -> None:
        choice = DataChoice(layout="messages")
        reports.append(service.check(middling, choice, lambda *_: running.set(), lambda: False))

    thread = threading.Thread(target=check)
    thread.start()
    assert running.wait(20)
    while thread.is_alive() and len(waited) < 5:
        start = time.monotonic()
        assert service.report(small, DataChoice()).usable == 2
        waited.append(time.monotonic() - start)
    thread.join()
    assert len(waited) >= 2
    assert max(waited) < 2
    assert reports[0].usable == 2997


def test_rows_of_a_large_file_wait_for_no_slice(service: DataService, middling: Path, tmp_path: Path) -> None:
    """A million rows took half a second each while the file was checked: three turns behind it."""
    large = tmp_path / "large.jsonl"
    large.write_bytes(middling.read_bytes() + b"{}\n")
    busy, seen = threading.Event(), threading.Event()
    held: list[bool] = []

    def slice_that_lasts(*_so_far: int) -> None:
        if service._files._at_work and not held:
            with service.reader._lock:
                busy.set()
                held.append(seen.wait(10))

    choice = DataChoice(layout="messages")
    thread = threading.Thread(target=lambda: service.check(large, choice, slice_that_lasts, lambda: False))
    thread.start()
    assert busy.wait(20)
    assert [row.row for row in service.table(large, choice, RowWish(first=2990, count=2)).rows] == [2991, 2992]
    assert "später" in service.row(large, choice, 2991)["messages"]
    seen.set()
    thread.join()
    assert held == [True], "they were there before the slice ended"
    assert not service._files._at_work
    left_out = RowWish(state="left_out")
    until(lambda: service.table(large, choice, left_out).complete)  # a look at a time, as the page asks for them
    assert service.table(large, choice, left_out).matching == 4


def test_a_reader_that_is_killed_midway_begins_again(service: DataService, middling: Path) -> None:
    killed: list[int] = []

    def kill(_done: int, _total: int, rows: int) -> None:
        if rows and not killed and service.reader.pid:
            killed.append(service.reader.pid)
            psutil.Process(service.reader.pid).kill()
            psutil.Process(killed[0]).wait(5)

    choice = DataChoice(columns={"messages": "messages"})
    assert service.check(middling, choice, kill, lambda: False).usable == 2997
    assert killed
    assert service.reader.pid not in killed
    assert unfinished(service) == []


def test_a_file_that_changes_meanwhile_is_told_and_read_anew(
    service: DataService, middling: Path, tmp_path: Path
) -> None:
    path = tmp_path / "growing.jsonl"
    path.write_bytes(middling.read_bytes() + b'{"messages": 2}\n')  # not known yet

    def grow(_done: int, _total: int, rows: int) -> None:
        if rows:
            with path.open("a") as stream:
                stream.write('{"messages": 1}\n')

    with pytest.raises(DataError, match="changed"):
        service.check(path, DataChoice(), grow, lambda: False)
    assert service.report(path, DataChoice()).usable == 2997


# ── what reading may take ────────────────────────────────────────────────────────────────────────────────────────────


def lines(*rows: str) -> Callable[[Path], Any]:
    return lambda path: path.write_text("".join(f"{row}\n" for row in rows))


def one_text(size: int, rows: int) -> Callable[[Path], None]:
    """Rows of Parquet that are all the same text, which their dictionary holds once."""
    text = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["x" * size]))
    return lambda path: pq.write_table(pa.table({"text": text}), path, compression="zstd")


def long_row(path: Path) -> None:
    texts = pa.table({"text": ["good", "z" * 20_000_000, "good"]})
    pq.write_table(texts, path, compression="zstd", use_dictionary=False)


DEEP = ["[" * depth + "]" * depth for depth in (99, 101, 900, 100_000)]
TWICE = ('{"text": "a", "text": "b"}', '{"text": "c"}', '{"more": {"a": 1, "a": 2}, "text": "d"}')
DIGITS = "7" * 5000
NUMBERS = f'[{{"text": "a", "no": {DIGITS}}}, {{"text": {DIGITS}}}, {{"text": "b", "no": -1e999}}]'
LONG_ELEMENT = f'[{{"text": "good"}}, {{"text": "{"x" * 12_000_000}"}}]'
COLUMNS = lines(",".join(["text"] * 30_000), ",".join(["x"] * 30_000))
BIRDS = lines(*['{"text": "' + "🦜" * 2_000_000 + '"}'] * 8)
LINE = lines("prompt,completion", "word " * 2_000_000, "a,b")
RECORD = lines("prompt,completion", '"' + '","\n' * 1_500_000)


@pytest.mark.parametrize(
    ("write", "suffix", "rows", "said"),
    [
        pytest.param(LINE, ".csv", (2, 1), "row 1: no CSV: the record", id="one line"),
        pytest.param(RECORD, ".csv", None, "at row 1: no CSV: the record", id="one record"),
        pytest.param(BIRDS, ".jsonl", (8, 8), "", marks=pytest.mark.slow, id="long rows"),
        pytest.param(lines(LONG_ELEMENT), ".json", None, "(row 2)", id="a long row of an array"),
        # Two hundred and fifty-six rows of 10 MB are read at once: gigabytes, of which the reader has none.
        pytest.param(one_text(10 << 20, 1000), ".parquet", None, "larger ones behind row 0", id="large pages"),
        pytest.param(long_row, ".parquet", (3, 2), "row 2: the row is larger than", id="a large row"),
        pytest.param(COLUMNS, ".csv", None, "at most 1,000 columns", id="many columns"),
        pytest.param(lines(*(f'{{"text": "x", "more": {one}}}' for one in DEEP)), ".jsonl", (4, 1),
                     "row 2: nested more than", id="deep"),
        pytest.param(lines(*TWICE), ".jsonl", (3, 1), "row 1: the key 'text' stands twice in one object", id="twice"),
        pytest.param(lines(NUMBERS), ".json", (3, 2), "row 2: text is a number of 5,000 digits", id="long numbers"),
    ],
)  # fmt: skip
def test_limits_hold(
    service: DataService,
    tmp_path: Path,
    write: Callable[[Path], Any],
    suffix: str,
    rows: tuple[int, int] | None,
    said: str,
) -> None:
    path, good = tmp_path / f"hostile{suffix}", tmp_path / "good.jsonl"
    write(path)
    good.write_text('{"text": "a"}\n')
    assert service.report(good, DataChoice(layout="text")).usable == 1
    before, start, found = service.reader.pid, time.monotonic(), asked(service, path)
    assert time.monotonic() - start < 20
    if isinstance(found, DataReport):
        assert (found.rows, found.usable) == rows
        told = [f"row {problem.row}: {problem.text}" for problem in found.problems]
    else:
        assert rows is None
        assert path.name in str(found)
        told = [str(found)]
    assert all("\n" not in line for line in told)
    assert any(said in line for line in told or [""]), told
    if isinstance(found, DataError) and found.code == "data.memory":
        assert service.reader.pid is None
        assert service.report(good, DataChoice()).usable == 1, "it ended its reader alone"
    else:
        assert service.reader.pid == before
        assert peak_bytes(service) < 500 << 20


def asked(service: DataService, path: Path) -> DataReport | DataError:
    try:
        return service.report(path, DataChoice())
    except DataError as error:
        return error


def test_what_swells_shows_progress_and_can_be_stopped(service: DataService, bomb: Path) -> None:
    start = time.monotonic()
    assert not service.first_look(bomb, DataChoice(), 0.1).complete
    assert time.monotonic() - start < 5
    told: list[tuple[int, ...]] = []
    with pytest.raises(DataError) as caught:
        service.check(bomb, DataChoice(), lambda *so_far: told.append(so_far), lambda: told[2:] and told[-1][0] > 0)
    assert caught.value.code == "data.stopped"
    assert 0 < told[-1][0] < told[-1][1], "how far, of how much"
    assert told[-1][2] > told[0][2]
    assert unfinished(service) == []


def test_nothing_begins_and_nothing_goes_on_after_the_end(bomb: Path, locations: Locations) -> None:
    service = DataService(locations.make())
    found: list[str] = []

    def work() -> None:
        try:
            service.report(bomb, DataChoice())
        except DataError as error:
            found.append(error.code)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    while not unfinished(service):
        time.sleep(0.01)
    start = time.monotonic()
    service.close()
    for thread in threads:
        thread.join(5)
    assert time.monotonic() - start < 3
    assert found == ["data.stopped"] * 3
    assert unfinished(service) == []
    for ask in (
        lambda: service.report(bomb, DataChoice()),
        lambda: service.from_hub("a/b", "", "train", 1),
        lambda: service.columns(bomb),
    ):
        with pytest.raises(DataError, match="stopped"):
            ask()
    service.warm()
    assert (service.reader.pid, service.renderer.pid) == (None, None)


def lying(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_what_swells_ends_at_a_bound_and_leaves_nothing(
    bomb: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_room, "LEAST_BYTES", 30 << 20)
    request = {"path": str(bomb), "named": str(bomb), "cache": str(tmp_path / "cache"), "choice": {}, "seconds": 60.0}
    with pytest.raises(DataError, match="swells as it is read") as caught:
        reader_child.check(request)
    assert caught.value.code == "data.swells"
    assert lying(tmp_path / "cache") == 0


def test_a_disk_that_is_nearly_full_is_left_to_the_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_room, "SPARE_BYTES", 1 << 60)
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
    assert [(said.exists(), large.exists()) for said, large in pairs] == [(one, one) for one in (False, True) * 2]
