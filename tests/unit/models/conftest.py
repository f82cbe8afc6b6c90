"""A hub of this room's own, and a way to run our code against it in a fresh process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hub_stand_in import HubStandIn, tiny_model

from core.machine.locations import REPOSITORY

Ask = Callable[..., dict[str, Any]]

FRAME = """
import json, sys, time
from core.models import catalog
from core.models.hub import cache, client as hub
from core.contract.errors import Fault
started, progress = time.monotonic(), []
try:
    value = (lambda: {expression})()
    answer = {{"value": value}}
except Fault as error:
    answer = {{"code": error.code, "text": str(error), "kind": type(error).__name__}}
answer |= {{"progress": progress, "seconds": time.monotonic() - started, "torch": "torch" in sys.modules}}
print("ANSWER " + json.dumps(answer))
"""


@pytest.fixture
def hub_of(tmp_path: Path) -> Iterator[HubStandIn]:
    """A hub with one tiny model, ``tester/tiny``."""
    with HubStandIn({"tester/tiny": tiny_model(tmp_path / "served", shards=2)}) as hub:
        yield hub


@pytest.fixture
def ask(hub_of: HubStandIn, tmp_path: Path) -> Ask:
    """Evaluates one expression of our code in a child whose hub is the stand-in; its cache stays between calls."""

    def run(expression: str, **environment: str) -> dict[str, Any]:
        own = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
        own |= hub_of.environment(tmp_path / "hf") | environment
        command = [sys.executable, "-c", FRAME.format(expression=expression)]
        done = subprocess.run(command, cwd=REPOSITORY, env=own, capture_output=True, text=True, timeout=99, check=False)
        lines = [line for line in done.stdout.splitlines() if line.startswith("ANSWER ")]
        assert lines, done.stdout + done.stderr
        answer: dict[str, Any] = json.loads(lines[0].removeprefix("ANSWER "))
        answer["printed"] = done.stdout.replace(lines[0], "") + done.stderr
        return answer

    return run
