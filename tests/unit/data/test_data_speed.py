"""50,000 chat rows of 40 MB: read, tokenised and masked in forty seconds on two cores; paged and searched at once."""

import itertools
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from whole_rows import peak_bytes

from core.contract.config import DataChoice
from core.data.service.data_service import DataService
from core.data.tokens.cache import list_cached
from core.machine.locations import REPOSITORY, Locations

pytestmark = [pytest.mark.slow, pytest.mark.alone]
ROWS = 50_000


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Conversations of words that stand in this repository, 40 MB in all."""
    dice = random.Random(3407)
    source = " ".join(file.read_text("utf-8") for file in sorted((REPOSITORY / "core").rglob("*.py")))
    words = [word for word in source.split() if word.isascii() and word.strip("_.,;:()").isalpha()]

    def some(low: int, high: int) -> str:
        count = dice.randint(low, high)
        start = dice.randrange(len(words) - count)
        return " ".join(words[start : start + count])

    path = tmp_path_factory.mktemp("large") / "chat.jsonl"
    with path.open("w", encoding="utf-8") as stream:
        for number in range(ROWS):
            turns = [{"role": "system", "content": some(5, 20)}] if dice.random() < 0.3 else []
            for _ in range(dice.choice((1, 1, 2, 3))):
                turns.append({"role": "user", "content": f"{some(4, 24)} {number}?"})
                turns.append({"role": "assistant", "content": some(20, 92)})
            stream.write(json.dumps({"messages": turns}) + "\n")
    return path


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


def test_fifty_thousand_rows(service: DataService, large: Path, model: Path, locations: Locations) -> None:
    choice, took = DataChoice(), {}

    def timed(name: str, work: Any) -> Any:
        begun = time.monotonic()
        found = work()
        took[name] = time.monotonic() - begun
        return found

    def preview(**asked: Any) -> Any:
        return service.preview(large, choice, model, 2048, **asked)

    assert 38e6 < large.stat().st_size < 44e6
    assert len(timed("first", preview).rows) == 20
    told: list[float] = []
    report = timed(
        "read", lambda: service.check(large, choice, lambda *_: told.append(time.monotonic()), lambda: False)
    )
    assert max(after - before for before, after in itertools.pairwise(told)) < 1, "a slice is short"
    assert peak_bytes(service) < 500 << 20
    assert timed("tokenised", lambda: service.tokenise(large, choice, model, lambda *_: None, lambda: False))
    (entry,) = list_cached(locations)
    assert (report.usable, entry.bytes < 6 * entry.tokens) == (ROWS, True)
    facts = timed("facts", lambda: service.facts(large, choice, model, 2048))
    shorter = timed("facts at another length", lambda: service.facts(large, choice, model, 128))
    assert (facts.rows, facts.sampled, len(facts.lengths)) == (ROWS, False, ROWS)
    assert sum(shorter.trained) < sum(facts.trained)
    for offset in (0, 20, 25_000, 49_980):
        page = timed(f"page at {offset}", lambda at=offset: preview(offset=at))
        assert [row.row for row in page.rows] == list(range(offset + 1, offset + 21))
    for word, least in (("49999?", 1), ("the", 1000), ("nowhere at all", 0)):
        assert timed(f"search {word}", lambda word=word: preview(search=word)).total >= least
        timed(f"page of {word}", lambda word=word: preview(search=word, offset=20))
    print(*(f"{name}: {seconds:.2f} s" for name, seconds in took.items()), sep="\n")
    assert took["read"] + took["tokenised"] < 40
    assert max(took["first"], took["facts"]) < 2
    assert max(seconds for name, seconds in took.items() if name.startswith(("page", "facts at"))) < 0.3
    assert max(seconds for name, seconds in took.items() if name.startswith("search")) < 3
