"""50,000 chat rows of 40 MB: read, tokenised and masked in forty seconds on two cores; paged and searched at once."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from core.contract.config import DataChoice
from core.data.service.data_service import DataService
from core.data.tokens.cache import list_cached
from core.machine.locations import REPOSITORY, Locations

pytestmark = [pytest.mark.slow, pytest.mark.alone]
ROWS = 50_000


def write_rows(path: Path, seed: int = 3407) -> Path:
    """Conversations of words that stand in this repository, 40 MB in all."""
    dice = random.Random(seed)
    source = " ".join(file.read_text("utf-8") for file in sorted((REPOSITORY / "core").rglob("*.py")))
    words = [word for word in source.split() if word.isascii() and word.strip("_.,;:()").isalpha()]

    def some(low: int, high: int) -> str:
        count = dice.randint(low, high)
        start = dice.randrange(len(words) - count)
        return " ".join(words[start : start + count])

    with path.open("w", encoding="utf-8") as stream:
        for number in range(ROWS):
            turns = [{"role": "system", "content": some(5, 20)}] if dice.random() < 0.3 else []
            for _ in range(dice.choice((1, 1, 2, 3))):
                turns.append({"role": "user", "content": f"{some(4, 24)} {number}?"})
                turns.append({"role": "assistant", "content": some(20, 92)})
            stream.write(json.dumps({"messages": turns}) + "\n")
    return path


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rows(tmp_path_factory.mktemp("large") / "chat.jsonl")


@pytest.fixture(scope="module")
def model(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real vocabulary with a published template."""
    folder = tmp_path_factory.mktemp("model")
    for file in (shared_data / "tokenizers" / "qwen2").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    template = shared_data / "templates" / "Qwen-Qwen2.5-7B-Instruct.jinja"
    (folder / "chat_template.jinja").write_text(template.read_text())
    return folder


@pytest.fixture
def service(locations: Locations, model: Path, tmp_path: Path) -> Iterator[DataService]:
    made = DataService(locations)
    few = tmp_path / "few.jsonl"
    few.write_text('{"prompt": "Hi", "completion": "Hello"}\n')
    made.preview(few, DataChoice(), model, 64)  # both children are warm, as they are in a studio
    yield made
    made.close()


def spent(service: DataService) -> float:
    """Processor seconds of both children so far."""
    pids = [pid for pid in (service.reader.pid, service.renderer.pid) if pid]
    return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids)


def timed(name: str, service: DataService, work: Any) -> tuple[float, Any]:
    wall, processor = time.monotonic(), spent(service)
    found = work()
    wall, processor = time.monotonic() - wall, spent(service) - processor
    print(f"{name}: {wall:.2f} s, {processor:.2f} processor seconds")
    return wall, found


def test_fifty_thousand_rows(service: DataService, large: Path, model: Path, locations: Locations) -> None:
    size = large.stat().st_size
    assert 38e6 < size < 44e6
    choice = DataChoice()
    first, page = timed("first page", service, lambda: service.preview(large, choice, model, 2048))
    assert len(page.rows) == 20
    read, report = timed("read", service, lambda: service.check(large, choice, lambda *_: None, lambda: False))
    made, whole = timed(
        "tokenised", service, lambda: service.tokenise(large, choice, model, lambda *_: None, lambda: False)
    )
    assert (report.usable, whole) == (ROWS, True)
    (entry,) = list_cached(locations)
    print(f"{size / 1e6:.1f} MB, {entry.tokens:,} tokens, {entry.bytes / 1e6:.1f} MB kept")
    assert entry.bytes < 6 * entry.tokens
    measured, facts = timed("facts", service, lambda: service.facts(large, choice, model, 2048))
    again, shorter = timed("facts at another length", service, lambda: service.facts(large, choice, model, 128))
    assert (facts.rows, facts.sampled, len(facts.lengths)) == (ROWS, False, ROWS)
    assert sum(shorter.trained) < sum(facts.trained)
    assert first < 2
    assert read + made < 40
    assert measured < 2
    assert again < 0.3


def test_pages_and_searches(service: DataService, large: Path, model: Path) -> None:
    choice = DataChoice()
    service.check(large, choice, lambda *_: None, lambda: False)
    service.preview(large, choice, model, 2048)
    for offset in (0, 20, 25_000, 49_980):
        page, found = timed(
            f"page at {offset}", service, lambda at=offset: service.preview(large, choice, model, 2048, offset=at)
        )
        assert [row.row for row in found.rows] == list(range(offset + 1, offset + 21))
        assert page < 0.3
    for word, least in (("49999?", 1), ("the", 1000), ("nowhere at all", 0)):
        search, found = timed(
            f"search {word}", service, lambda word=word: service.preview(large, choice, model, 2048, search=word)
        )
        assert found.total >= least
        assert search < 3
        again, _ = timed(
            "its next page",
            service,
            lambda word=word: service.preview(large, choice, model, 2048, search=word, offset=20),
        )
        assert again < 0.3
