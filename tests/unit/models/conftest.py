"""A hub of this room's own, and a way to run our code against it in a process that read its variables itself."""

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
CHILD = Path(__file__).with_name("hub_child.py")


@pytest.fixture
def hub_of(tmp_path: Path) -> Iterator[HubStandIn]:
    """A hub with one tiny model, ``tester/tiny``."""
    with HubStandIn({"tester/tiny": tiny_model(tmp_path / "served", shards=2)}) as hub:
        yield hub


@pytest.fixture(scope="module")
def nursery() -> Iterator[subprocess.Popen[str]]:
    """The process off which those are forked that ask the hub."""
    command = [sys.executable, str(CHILD)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=REPOSITORY, env=environment, **pipes) as process:
        yield process
        assert process.stdin
        process.stdin.close()  # it ends with its input


@pytest.fixture
def ask(hub_of: HubStandIn, tmp_path: Path, nursery: subprocess.Popen[str]) -> Ask:
    """Evaluates expressions of our code, one after another, in a child whose hub is the stand-in: the answer of one, or
    the answers of several. The cache stays between calls; nothing else does."""

    def run(*expressions: str, **environment: str) -> Any:
        own = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
        own |= hub_of.environment(tmp_path / "hf") | environment
        said = tmp_path / "said.txt"
        assert nursery.stdin
        assert nursery.stdout
        nursery.stdin.write(json.dumps({"ask": expressions, "environment": own, "said": str(said)}) + "\n")
        nursery.stdin.flush()
        assert nursery.stdout.readline() == "0\n", said.read_text()
        text = said.read_text().splitlines()
        lines = [line for line in text if line.startswith("ANSWER ")]
        assert len(lines) == len(expressions), text
        printed = "\n".join(line for line in text if line not in lines)
        answers = [json.loads(line.removeprefix("ANSWER ")) | {"printed": printed} for line in lines]
        return answers if len(answers) > 1 else answers[0]

    return run
