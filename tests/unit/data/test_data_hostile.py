"""Hostile chat templates: one line each within six seconds, and the studio's own process never notices."""

import json
import os
import shutil
import threading
import time
from pathlib import Path

import psutil
import pytest

from core.contract.config import DataChoice
from core.contract.errors import DataError
from core.data.render.template_limits import UnfitTemplateError, limited_time
from core.data.service.data_service import DataService

LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}" + "{% endfor %}" * 3
TURNS = "{% for m in messages %}{{ m.role + m.content }}<|im_end|>{% endfor %}"
HOSTILE = {
    "endless loop": LOOP,
    "a thousand million characters": "{{ 'x' * 10**9 }}",
    "ten thousand million characters": "{{ 'x' * 10**10 }}",
    "huge power": "{{ 9**(9**9) }}",
    "huge power of a power": "{% if 7**(10**8) % 3 %}{% endif %}" + TURNS,
    "attribute climbing": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "attribute climbing by name": "{{ (messages | attr('__class__')).__base__ }}",
    "writing into its input": "{% set x = messages.append(1) %}" + TURNS,
    "deep recursion": "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
    "deep recursion of its text": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "too many blocks": "{% for a in [1] %}" * 30 + "{% endfor %}" * 30,
    "output bomb": "{% for a in range(99999) %}{% for b in range(99999) %}{{ 'x' * 100000 }}{% endfor %}{% endfor %}",
    "doubling": "{% set ns = namespace(s='x') %}{% for a in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
    "well-behaved until a row is long": "{% if messages[0].content | length > 100 %}" + LOOP + "{% endif %}" + TURNS,
    "long format": "{{ '%01000000000d' | format(1) }}",
    "long date": "{{ strftime_now('%c' * 10**7) }}",
    "a file": "{% include '/etc/passwd' %}",
}
WORST = {"a thousand million characters", "huge power", "attribute climbing", "deep recursion", "long date"}
"""One for each way in which they end; of time the one that no signal interrupts at once."""


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    made = [{"prompt": "question " * 20, "completion": f"the answer {number}"} for number in range(5)]
    path.write_text("".join(json.dumps(row) + "\n" for row in made))
    return path


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in WORST else [pytest.mark.slow]) for name in HOSTILE]
)
def test_one_line_within_six_seconds(
    warm_service: DataService, rows: Path, tokenizer_folder: Path, tmp_path: Path, name: str
) -> None:
    service = warm_service
    assert service.preview(rows, DataChoice(), tokenizer_folder, 64).total == 5
    folder = tmp_path / "model"
    shutil.copytree(tokenizer_folder, folder)
    (folder / "chat_template.jinja").write_text(HOSTILE[name])
    before, start = psutil.Process(os.getpid()).memory_info().rss, time.monotonic()
    with pytest.raises(DataError) as caught:
        service.preview(rows, DataChoice(), folder, 64)
    took = time.monotonic() - start
    said = str(caught.value)
    print(f"{name}: {took:.2f} s: {said}")
    assert took < 6
    assert "\n" not in said
    assert len(said) < 400
    assert psutil.Process(os.getpid()).memory_info().rss - before < 64 << 20
    assert service.preview(rows, DataChoice(), tokenizer_folder, 64).total == 5
    assert service.renderer.pid is not None
    if "until a row is long" in name:  # the template is well when it is tried, and hangs while rows are tokenised
        with pytest.raises(DataError):
            service.facts(rows, DataChoice(), folder, 64)


def endlessly() -> None:
    while True:
        pass


def test_time_is_limited_in_the_main_thread_and_given_back() -> None:
    with pytest.raises(UnfitTemplateError, match="still at work"), limited_time(0.05):
        endlessly()
    with limited_time(0.05):
        pass
    time.sleep(0.1)  # the signal of a time that was kept does not come later
    found: list[str] = []

    def aside() -> None:
        with limited_time(0.01):
            time.sleep(0.05)
        found.append("done")

    thread = threading.Thread(target=aside)
    thread.start()
    thread.join()
    assert found == ["done"]
