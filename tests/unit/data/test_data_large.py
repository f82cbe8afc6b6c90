"""Large and hostile files through the real reader: there at once, checked in slices, stopped at once, within limits."""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from whole_rows import read_report

from core.contract.config import DataChoice
from core.contract.data import DataReport
from core.contract.errors import DataError
from core.data.service.data_service import DataService
from core.data.service.reader import LOOK_SECONDS, SLICE_SECONDS
from core.machine.children.pipe import Child, Limits
from core.machine.locations import Locations

MEMORY_BYTES = 500 << 20


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataService]:
    made = DataService(Locations(tmp_path_factory.mktemp("large home")).make())
    # Slices so short that a few megabytes are a large file, however quick the machine is.
    made._files.slice_seconds = made._files.look_seconds = 0.01
    yield made
    made.close()


def large(path: Path, megabytes: int) -> Path:
    """Chats of words drawn from a seed; every thousandth row is broken."""
    drawn = random.Random(4)
    words = ["".join(drawn.choices("abcdefghijklmnopqrstuvwxyz", k=drawn.randint(2, 9))) for _ in range(3000)]
    size = number = 0
    with path.open("w", encoding="utf-8") as stream:
        while size < megabytes * 1_000_000:
            number += 1
            asked, told = (" ".join(drawn.choices(words, k=count)) for count in (30, 110))
            turns = [{"role": "user", "content": asked}, {"role": "assistant", "content": f"{told} später 🦜"}]
            line = '{"messages": null}\n' if number % 1000 == 500 else json.dumps({"messages": turns}) + "\n"
            size += stream.write(line)
    return path


@pytest.fixture(scope="module")
def middling(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return large(tmp_path_factory.mktemp("middling") / "chats.jsonl", 3)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.jsonl"
    path.write_text('{"text": "one"}\n{"text": "two"}\n')
    return path


def peak_bytes(pid: int | None) -> int:
    """The most memory that a process ever held."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


def unfinished(service: DataService) -> list[Path]:
    return list((service._locations.cache / "data").glob("*.part"))


def test_a_large_file_is_looked_at_and_then_checked(service: DataService, middling: Path) -> None:
    first = service.first_look(middling, DataChoice())
    assert (first.complete, first.layout) == (False, "messages")
    assert 200 <= first.rows < 1500
    assert service.first_look(middling, DataChoice()) == first
    told: list[tuple[int, int, int]] = []
    whole = service.check(middling, DataChoice(), lambda *so_far: told.append(so_far), lambda: False)
    assert whole == read_report(middling, DataChoice())
    assert whole.rows - whole.usable == len(range(500, whole.rows + 1, 1000))
    assert [problem.row for problem in whole.problems] == list(range(500, whole.rows + 1, 1000))
    assert told == sorted(told)
    assert len({done for done, _, _ in told}) >= 3
    assert told[-1] == (whole.bytes, whole.bytes, whole.rows)
    assert service.first_look(middling, DataChoice()) == whole == service.report(middling, DataChoice())
    ends = service.examples(middling, DataChoice(), (0, whole.usable - 1))
    assert [example.row for example in ends] == [1, whole.rows]


def test_others_get_their_turn_between_the_slices(service: DataService, middling: Path, small: Path) -> None:
    choice = DataChoice(layout="messages")
    running, reports, waited = threading.Event(), [], []

    def check() -> None:
        reports.append(service.check(middling, choice, lambda *_: running.set(), lambda: False))

    thread = threading.Thread(target=check)
    thread.start()
    assert running.wait(20)
    while thread.is_alive() and len(waited) < 5:
        start = time.monotonic()
        assert service.report(small, DataChoice()).usable == 2
        waited.append(time.monotonic() - start)
    assert len(waited) >= 2
    assert not reports or len(waited) == 5
    thread.join()
    assert reports[0].usable > 1000
    assert max(waited) < 2


def test_a_check_is_stopped_at_once_and_leaves_nothing(service: DataService, middling: Path) -> None:
    choice = DataChoice(layout="messages", columns={"messages": "messages"})
    asked: list[float] = []

    def cancelled() -> bool:
        if service_rows and not asked:
            asked.append(time.monotonic())
        return bool(asked)

    service_rows: list[int] = []
    with pytest.raises(DataError) as caught:
        service.check(middling, choice, lambda _done, _all, rows: service_rows.append(rows), cancelled)
    assert caught.value.code == "data.stopped"
    assert time.monotonic() - asked[0] < 1
    assert unfinished(service) == []
    assert service.report(middling, choice).complete


@pytest.mark.slow
def test_a_reader_that_is_killed_midway_begins_again(service: DataService, middling: Path) -> None:
    choice = DataChoice(columns={"messages": "messages"})
    killed: list[int] = []

    def kill(_done: int, _total: int, rows: int) -> None:
        if rows and not killed and service.reader.pid:
            killed.append(service.reader.pid)
            psutil.Process(service.reader.pid).kill()
            psutil.Process(service.reader.pid).wait(5)

    report = service.check(middling, choice, kill, lambda: False)
    assert killed
    assert service.reader.pid not in killed
    assert report.usable == service.report(middling, DataChoice()).usable
    assert unfinished(service) == []


@pytest.mark.slow
def test_a_file_that_changes_meanwhile_is_told(service: DataService, middling: Path, tmp_path: Path) -> None:
    path = tmp_path / "growing.jsonl"
    path.write_bytes(middling.read_bytes() + b'{"messages": 2}\n')

    def grow(_done: int, _total: int, rows: int) -> None:
        if rows:
            with path.open("a") as stream:
                stream.write('{"messages": 1}\n')

    with pytest.raises(DataError, match="changed"):
        service.check(path, DataChoice(), grow, lambda: False)


def parquet(path: Path, columns: dict[str, Any], **options: Any) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(columns), path, **options)


def lines(*rows: str) -> Any:
    return lambda path: path.write_text("".join(f"{row}\n" for row in rows))


def column(texts: Callable[[], list[str]], **options: Any) -> Any:
    return lambda path: parquet(path, {"text": texts()}, compression="zstd", **options)


DEEP = ["[" * depth + "]" * depth for depth in (99, 101, 900, 100_000)]
TWICE = ('{"text": "a", "text": "b"}', '{"text": "c"}', '{"more": {"a": 1, "a": 2}, "text": "d"}')
DIGITS = "7" * 5000
NUMBERS = f'[{{"text": "a", "no": {DIGITS}}}, {{"text": {DIGITS}}}, {{"text": "b", "no": -1e999}}]'
# A page of Parquet holds 1,024 rows at least, as it is written: here 800 MB.
PAGES = column(lambda: ["y" * 800_000 + str(number) for number in range(1024)])
ROW = column(lambda: ["good", "z" * 20_000_000, "good"], use_dictionary=False)
COLUMNS = lines(",".join(["text"] * 30_000), ",".join(["x"] * 30_000))
BIRDS = lines(*['{"text": "' + "🦜" * 2_000_000 + '"}'] * 8)
HOSTILE = {
    "one line": (
        lines("prompt,completion", "word " * 2_000_000, "a,b"),
        ".csv",
        (2, 1),
        "row 1: no CSV: the record",
    ),
    "one record": (lines("prompt,completion", '"' + '","\n' * 1_500_000), ".csv", None, "at row 1: no CSV: the record"),
    "long rows": (BIRDS, ".jsonl", (8, 8), ""),
    "a long row of an array": (
        lines(f'[{{"text": "good"}}, {{"text": "{"x" * 12_000_000}"}}]'),
        ".json",
        None,
        "(row 2)",
    ),
    "large pages": (PAGES, ".parquet", None, "larger ones behind row 0"),
    "a large row": (ROW, ".parquet", (3, 2), "row 2: the row is larger than"),
    "many columns": (COLUMNS, ".csv", None, "at most 1,000 columns"),
    "deep": (lines(*(f'{{"text": "x", "more": {one}}}' for one in DEEP)), ".jsonl", (4, 1), "row 2: nested more than"),
    "a key twice": (lines(*TWICE), ".jsonl", (3, 1), "row 1: the key 'text' stands twice in one object"),
    "long numbers": (lines(NUMBERS), ".json", (3, 2), "row 2: text is a number of 5,000 digits"),
}
LONG = ("long rows", "large pages")


@pytest.mark.parametrize("what", [pytest.param(one, marks=[pytest.mark.slow] * (one in LONG)) for one in HOSTILE])
def test_limits_hold(service: DataService, tmp_path: Path, what: str) -> None:
    write, suffix, rows, said = HOSTILE[what]
    path = tmp_path / f"hostile{suffix}"
    write(path)
    service.reader.warm()
    before = service.reader.pid
    start = time.monotonic()
    found = asked(service, path)
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
    if what == "large pages":
        assert service.reader.pid is None
        return
    assert service.reader.pid == before
    assert peak_bytes(before) - service.reader._idle_bytes < MEMORY_BYTES


def asked(service: DataService, path: Path) -> DataReport | DataError:
    try:
        return service.report(path, DataChoice())
    except DataError as error:
        return error


GREEDY = """
from core.machine.children.serve import serve
def grow(request):
    held = []
    while True: held.append(bytearray(200 << 20))
def sleep(request):
    import time
    time.sleep(60)
serve({"grow": grow, "fine": lambda request: 5, "sleep": sleep})
"""


def test_a_burst_is_refused_before_it_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two looks at its size a child can take gigabytes: the wall stands without looking."""
    (tmp_path / "greedy_child.py").write_text(GREEDY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    child = Child("greedy_child", "reader", Limits(3, 60, MEMORY_BYTES, walled=True))
    try:
        assert child.ask({"do": "fine"}) == 5
        with pytest.raises(DataError) as caught:
            child.ask({"do": "grow", "path": "/somewhere/rows.csv"}, "rows.csv")
        assert caught.value.code == "data.memory"
        assert "rows.csv" in str(caught.value)
        assert child.pid is None
        with pytest.raises(DataError, match=r"rows\.csv within 3 seconds"):
            child.ask({"do": "sleep"}, "rows.csv")
        start = time.monotonic()
        with pytest.raises(DataError) as caught:
            child.ask({"do": "sleep"}, "rows.csv", lambda: child.pid is not None)
        assert caught.value.code == "data.stopped"
        assert child.pid is None
        assert time.monotonic() - start < 10
        assert child.ask({"do": "fine"}) == 5
    finally:
        child.close()


@pytest.mark.slow
@pytest.mark.alone
def test_a_hundred_megabytes(service: DataService, tmp_path: Path) -> None:
    path = large(tmp_path / "chats.jsonl", 100)
    service.columns(path)
    service._files.slice_seconds, service._files.look_seconds = SLICE_SECONDS, LOOK_SECONDS
    start = time.monotonic()
    first = service.first_look(path, DataChoice())
    looked = time.monotonic() - start
    assert looked < 2
    assert first.usable >= 20
    told: list[float] = []
    whole = service.check(path, DataChoice(), lambda *_: told.append(time.monotonic()), lambda: False)
    assert whole.complete
    assert max(after - before for before, after in itertools.pairwise(told)) < 1
    assert peak_bytes(service.reader.pid) - service.reader._idle_bytes < MEMORY_BYTES
