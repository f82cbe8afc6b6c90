"""Starting: ports, the living studio that a second start finds, a full disk, and what importing leaves alone."""

import asyncio
import json
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import psutil
import pytest
from fastapi import FastAPI
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient
from waiting import run_apart

from core.contract.errors import MachineError
from core.machine.locations import REPOSITORY, Locations
from studio.server import app as app_module
from studio.server import opening as opening_module
from studio.server.access.guard import Guard
from studio.server.access.listening import Front
from studio.server.access.sessions import AccessTokens
from studio.server.app import bind, main
from studio.server.living import living_studio, only_studio, remember
from studio.server.opening import Opening


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that something else listens on."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen(1)
        yield other.getsockname()[1]


def test_an_asked_port_that_is_taken_is_one_line_with_the_way_out(taken: int) -> None:
    with pytest.raises(MachineError) as caught:
        bind(taken)
    assert str(taken) in caught.value.message
    assert f"--port {taken + 1}" in caught.value.hint


def test_without_a_wish_the_next_port_is_taken(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "DEFAULT_PORT", taken)
    with bind(None) as listener:
        host, port = listener.getsockname()
    assert host == "127.0.0.1"
    assert taken < port < taken + 10


def test_no_answer_waits_for_a_receipt() -> None:
    """asyncio sends small pieces at once only on sockets that say they are TCP; else a body waits 40 ms."""

    async def connected() -> bool:
        no_delay: asyncio.Queue[bool] = asyncio.Queue()

        def note(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            no_delay.put_nowait(
                bool(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            )
            writer.close()

        listener = bind(0)
        async with await asyncio.start_server(note, sock=listener):
            _, writer = await asyncio.open_connection(*listener.getsockname())
            writer.close()
            return await no_delay.get()

    assert run_apart(connected())


@pytest.fixture
def living(door: AccessTokens, serve: Callable[..., int], locations: Locations) -> Iterator[AccessTokens]:
    """A guard that serves, remembered as this process's studio."""
    port = serve(lambda port: Guard(PlainTextResponse("inside"), door, Front(port), lambda: "the secret"))
    with remember(locations, Front(port), "the secret"):
        yield door


def test_a_second_start_finds_the_living_studio_and_opens_that(
    living: AccessTokens, locations: Locations, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(app_module, "open_address", lambda address, wsl: bool(opened.append(address)) or True)
    assert main(None, locations.home, open_browser=True) == 0
    assert len(opened) == 1
    assert opened[0] in capsys.readouterr().out
    assert living.enter(opened[0].split("token=")[1])
    assert stat.S_IMODE(locations.studio.stat().st_mode) == 0o600


@pytest.mark.usefixtures("living")
def test_a_wrong_secret_or_a_dead_process_is_no_living_studio(locations: Locations) -> None:
    known = json.loads(locations.studio.read_text("utf-8"))
    locations.studio.write_text(json.dumps({**known, "secret": "other"}))
    assert living_studio(locations) is None
    locations.studio.write_text(json.dumps({**known, "created": known["created"] - 100}))
    assert living_studio(locations) is None
    locations.studio.write_text("{")
    assert living_studio(locations) is None


@pytest.mark.usefixtures("living")
def test_a_corrected_clock_does_not_disown_the_living_studio(
    locations: Locations, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = psutil.Process().create_time() + 3600
    monkeypatch.setattr(psutil.Process, "create_time", lambda _: moved)
    assert living_studio(locations)


def test_of_two_studios_in_one_instant_the_second_waits_for_the_first(
    locations: Locations, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([None, None, None, None, "http://127.0.0.1:1/"])
    with only_studio(locations) as first:
        assert first is None
        monkeypatch.setattr("studio.server.living.living_studio", lambda _: next(answers))
        with only_studio(locations) as second:
            assert second == "http://127.0.0.1:1/"
        monkeypatch.setattr("studio.server.living.living_studio", lambda _: None)
        with only_studio(locations, seconds=0.3) as third:
            assert third is None, "one that never answers is not waited for for ever"
    with only_studio(locations) as fourth:
        assert fourth is None


def test_the_studios_file_goes_with_it_unless_another_took_its_place(locations: Locations) -> None:
    with remember(locations, Front(1), "a"):
        assert json.loads(locations.studio.read_text("utf-8"))["pid"] == os.getpid()
        assert json.loads(locations.studio.read_text("utf-8"))["boot"]
    assert not locations.studio.exists()
    with remember(locations, Front(1), "a"):
        locations.studio.write_text('{"pid": 1, "created": 1, "port": 2, "secret": "b"}')
    assert locations.studio.exists()


def left(program: str) -> str:
    """What a fresh interpreter prints after this program."""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False
    )
    return done.stdout.strip() or done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What one fresh interpreter says in which the live pages are asked for, and then New run is built: a line each."""
    home = tmp_path_factory.mktemp("built")
    program = (
        "import gc, inspect, sys; from pathlib import Path; from core.machine.locations import Locations\n"
        "from studio.services.services import opened; from studio.server.app import _opening, application\n"
        "from starlette.testclient import TestClient\n"
        "import fastapi, jinja2; plain, stubs, made, docs = (inspect.getfile, jinja2.Template), [], [], []\n"
        "def counted(owner, name, seen):\n"
        "    was = getattr(owner, name)\n"
        "    setattr(owner, name, lambda *a, **k: (seen.append(type(a[0]).__module__), was(*a, **k))[1])\n"
        "counted(jinja2.Environment, 'compile', docs)\n"
        "counted(fastapi.FastAPI, '__init__', made)\n"
        "sys.addaudithook(lambda what, told: stubs.append(told[0])\n"
        "    if what == 'open' and str(told[0]).endswith('.pyi') else None)\n"
        "gc.disable()  # as a start does\n"
        f"with opened(Locations(Path({str(home)!r})).make(), 8765) as studio:\n"
        "    client = TestClient(application(studio, failed=print))  # not entered: New run is not built yet\n"
        "    pages = [client.get(path).text for path in ('/', '/watch', '/try', '/take-home', '/history', '/doctor')]\n"
        "    assert all(page.count('<h1') == 1 and page.count('id=\"page\"') == 1 for page in pages), pages\n"
        "    heavy = {'torch', 'transformers', 'pyarrow', 'gradio', 'pandas'}\n"
        "    print(len(pages), sorted(heavy & set(sys.modules)))\n"
        "    window = _opening(studio, print)._build()\n"
        "    queue = next(one.kwargs['queue'] for one in window.user_middleware if 'queue' in one.kwargs)\n"
        "queue.events_recorded = 9999\n"
        "assert queue.blocks.app.get_blocks() is queue.blocks\n"
        "assert queue.compute_analytics_summary([{'function': 'edited'}]) == {'functions': {}}\n"
        "heavy = {'torch', 'transformers', 'peft', 'trl', 'bitsandbytes', 'datasets', 'accelerate', 'pandas'}\n"
        "print(sorted(heavy & set(sys.modules)), stubs, docs, made.count('gradio.routes'), gc.isenabled(),\n"
        "      plain == (inspect.getfile, jinja2.Template))"
    )
    return left(program).splitlines()


def test_the_live_pages_and_the_outline_are_there_without_gradio(built: list[str]) -> None:
    assert built[0] == "6 []", built


def test_the_whole_window_is_built_without_what_it_has_no_use_for(built: list[str]) -> None:
    """Gradio's stubs and docstrings are made by nobody, pandas is not imported, of three applications one is made; nor
    is a table of all events made anew after each. What a newer Gradio does otherwise is counted here."""
    assert built[1:] == ["[] [] [] 1 True True"]


def test_pandas_is_itself_once_it_is_used_and_no_stand_in_is_left_behind() -> None:
    program = (
        "import sys; from studio.server.importing import pandas_later\n"
        "with pandas_later():\n"
        "    import importlib.util, pandas as unused\n"
        "    there = importlib.util.find_spec('pandas') is not None\n"
        "left = 'pandas' in sys.modules\n"
        "with pandas_later():\n"
        "    import pandas as early\n"
        "    used = early.NA\n"
        "    import pandas as late\n"
        "with pandas_later():\n"
        "    import pandas as again\n"
        "print(*(type(one).__name__ for one in (unused, early, late)), left, used is late.NA, again is late, there)"
    )
    assert left(program) == "Later Later module False True True True"


# ── while New run is being built ─────────────────────────────────────────────────────────────────────────────────────


def served(opening: Opening) -> FastAPI:
    app = FastAPI(lifespan=opening.lifespan)
    app.get("/standing")(opening.built)
    app.mount("/", opening)
    return app


def page() -> FastAPI:
    app = FastAPI()
    app.get("/")(lambda: "the page")
    app.get("/theme.css")(lambda: "a style")
    return app


def test_the_outline_stands_until_the_page_is_built_and_other_questions_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening_module, "HOLD_SECONDS", 0.02)
    go_on, waited = threading.Event(), []

    def build() -> FastAPI:
        assert go_on.wait(20)
        return page()

    with TestClient(served(Opening(build, lambda: "the outline", failed=pytest.fail))) as client:
        assert client.get("/").text == "the outline"
        assert client.get("/standing").json() is False
        asking = threading.Thread(target=lambda: waited.append(client.get("/theme.css").json()))
        asking.start()
        asking.join(0.2)
        assert waited == []
        go_on.set()
        asking.join(20)
        assert waited == ["a style"]
        assert client.get("/standing").json() is True
        assert client.get("/").json() == "the page"


def test_a_page_that_cannot_be_built_ends_the_server(capsys: pytest.CaptureFixture[str]) -> None:
    failed = threading.Event()

    def build() -> FastAPI:
        raise RuntimeError("no such page")

    with TestClient(served(Opening(build, lambda: "the outline", failed=failed.set))) as client:
        assert failed.wait(20)
        assert client.get("/standing").json() is False
    assert "no such page" in capsys.readouterr().err
