"""A hub of this room's own, and a way to run our code against it in a fresh process."""

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

Ask = Callable[..., Any]

FRAME = """
import json, sys, time
from core.models import catalog
from core.models.hub import cache, client as hub
from core.contract.errors import Fault
for expression in sys.argv[1:]:
    started, progress = time.monotonic(), []
    try:
        answer = {"value": eval(expression)}
    except Fault as error:
        answer = {"code": error.code, "text": str(error), "kind": type(error).__name__}
    answer |= {"progress": progress, "seconds": time.monotonic() - started, "torch": "torch" in sys.modules}
    print("ANSWER " + json.dumps(answer))
"""


@pytest.fixture
def hub_of(tmp_path: Path) -> Iterator[HubStandIn]:
    """A hub with one tiny model, ``tester/tiny``."""
    with HubStandIn({"tester/tiny": tiny_model(tmp_path / "served", shards=2)}) as hub:
        yield hub


@pytest.fixture
def ask(hub_of: HubStandIn, tmp_path: Path) -> Ask:
    """Evaluates expressions of our code, one after another, in a child whose hub is the stand-in: the answer of one, or
    the answers of several. The cache stays between calls."""

    def run(*expressions: str, **environment: str) -> Any:
        own = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
        own |= hub_of.environment(tmp_path / "hf") | environment
        command = [sys.executable, "-c", FRAME, *expressions]
        done = subprocess.run(command, cwd=REPOSITORY, env=own, capture_output=True, text=True, timeout=99, check=False)
        lines = [line for line in done.stdout.splitlines() if line.startswith("ANSWER ")]
        assert len(lines) == len(expressions), done.stdout + done.stderr
        printed = "\n".join(line for line in done.stdout.splitlines() if line not in lines) + done.stderr
        answers = [json.loads(line.removeprefix("ANSWER ")) | {"printed": printed} for line in lines]
        return answers if len(answers) > 1 else answers[0]

    return run
