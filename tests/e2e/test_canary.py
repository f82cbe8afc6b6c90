"""A canary in the hub's token: after a training and an export of a gated model it is found nowhere that we made.

Looked at are the arguments of every process meanwhile, all files under the root (runs, logs, cards, exports, caches),
what the commands print, and every answer of the studio to a browser that was let in. One run goes well; in another the
hub fails in mid-way and quotes all that it was sent.
"""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
import yaml
from driving import RunningStudio, running_studio
from hub_stand_in import TOKEN, HubStandIn
from tiny_run import make_model, raw_config, write_instructions

from core.machine.locations import REPOSITORY, Locations
from core.runs.control.store import RunStore
from studio.server.access import routes

pytestmark = pytest.mark.slow
CANARY = TOKEN


@contextmanager
def watched_arguments() -> Iterator[list[str]]:
    """Command lines with the canary in them, of any process, while the block lasts."""
    found: list[str] = []
    over = threading.Event()

    def look() -> None:
        seen: dict[int, float] = {}
        while not over.wait(0.05):
            for pid in psutil.pids():  # a process that has become another program is looked at again
                with suppress(psutil.Error):
                    process = psutil.Process(pid)
                    if seen.get(pid, 0.0) + 1.0 < time.monotonic():
                        seen[pid] = time.monotonic()
                        line = " ".join(process.cmdline())
                        if CANARY in line:
                            found.append(line)

    watching = threading.Thread(target=look)
    watching.start()
    try:
        yield found
    finally:
        over.set()
        watching.join()


def command(home: Path, environment: dict[str, str], *words: str) -> tuple[int, str]:
    """A command of ours; its code and all that it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "core.cli", *words, "--home", str(home)], cwd=REPOSITORY, text=True, timeout=300,
        env={**os.environ, **environment, "LUTHIER_HOME": str(home)}, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return done.returncode, done.stdout


def answers(studio: RunningStudio, runs: list[str]) -> Iterator[tuple[str, str]]:
    """Every page and reading route as a browser gets it: its headers and what it says."""
    parts = urlsplit(studio.fresh_address())

    def ask(path: str, cookie: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(str(parts.hostname), parts.port or 0, timeout=200)
        connection.request("GET", path, headers={"Cookie": cookie, "Accept": "text/html"})
        return connection.getresponse()

    entered = ask(f"{parts.path}?{parts.query}", "").getheader("set-cookie", "").split(";")[0]
    own = [path for path in routes.READ if "{path}" not in path and not path.startswith("/gradio_api")]
    waiting = "/studio/now"
    for path in [*own, "/studio/points?log=1"]:
        for run in runs if "{id}" in path or "points" in path else [""]:
            if path != waiting:
                asked = path.replace("{id}", run) + (f"&run={run}" if "?" in path else "")
                answer = ask(asked, entered)
                yield asked, f"{answer.getheaders()} {answer.read().decode('utf-8', 'replace')}"


def test_the_hubs_token_is_found_nowhere(tmp_path: Path) -> None:
    home, cache = tmp_path / "home", tmp_path / "hf"
    model = make_model(tmp_path / "model")
    rows = write_instructions(tmp_path / "rows.jsonl")
    for name in ("owner/gated", "owner/echoing"):
        raw = raw_config(model, rows)
        raw["model"].update(source="hub", name=name)
        (tmp_path / f"{name.split('/')[1]}.yaml").write_text(yaml.safe_dump(raw, default_flow_style=False))
    printed: list[str] = []
    with HubStandIn({"owner/gated": model, "owner/echoing": model}) as hub, watched_arguments() as argued:
        hub.gated.add("owner/gated")
        environment = {**hub.environment(cache), "HF_TOKEN": CANARY}
        cache.mkdir()
        (cache / "token").write_text(CANARY)
        code, said = command(home, environment, "train", str(tmp_path / "gated.yaml"))
        printed.append(said)
        assert code == 0, said
        store = RunStore(Locations(home))
        (run,) = [summary.run_id for summary in store.list()]
        for form in ("adapter", "merged"):
            code, said = command(home, environment, "export", run, "--form", form)
            printed.append(said)
            assert code == 0, said
        hub.echoing.add("owner/echoing")
        code, said = command(home, environment, "train", str(tmp_path / "echoing.yaml"))
        printed.append(said)
        assert code == 1
        assert "HTTP 500" in said
        with running_studio(home, **environment) as studio:
            for asked, answer in answers(studio, [summary.run_id for summary in store.list()]):
                assert CANARY not in answer, asked
    assert len([request for request in hub.requests if "resolve" in request]) > 3, "the token was used"
    assert argued == []
    assert CANARY not in "".join(printed)
    files = [path for path in home.rglob("*") if path.is_file()]
    assert len(files) > 40
    assert [str(path) for path in files if CANARY.encode() in path.read_bytes()] == []
