"""A thousand hostile names, in the routes and fields that take one: none leads out of our folders, none is told apart.

Beside the studio's root lie files with a canary in them, and links to them; what is asked by name finds none of it,
and what is refused has the same words whatever lies there.
"""

import contextlib
import itertools
import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from fastapi.routing import APIRoute
from made_runs import past
from pydantic import ValidationError
from waiting import run_apart

from core.contract.config import DataChoice, RunConfig
from core.contract.data import Message
from core.contract.errors import DataError, Fault, ModelError, RunError
from core.data.service.data_service import DataService
from core.machine.locations import Locations
from core.models.catalog import find_model
from core.runs.control.prepare import _start
from core.runs.control.store import RunStore
from core.runs.folder.job_folder import ExportRequest, JobFolder
from studio.pages.new_run.data.upload import _name, uploaded
from studio.server.access.guard import Guard
from studio.server.access.listening import Front
from studio.server.access.sessions import AccessTokens
from studio.server.app import application
from studio.server.pages import page_routes
from studio.services.chats import Question
from studio.services.services import Studio
from studio.shell.assets import asset

CANARY = "canary-5f1c"
RUN = "2026-11-20_2243_test_k3f9"


def hostile() -> list[str]:
    """Ways out of a folder, written in every way that something might read once more."""
    ups = [
        "../", "..\\", "%2e%2e%2f", "%252e%252e%252f", "..%2f", "..%5c", "․․/", "．．／", "‥/", "..;/", "....//",
        ".%00./",
    ]  # fmt: skip
    targets = ["secret.jsonl", "secret", "link.jsonl", "etc/passwd", "home/studio.json", "secret-model", "", "."]
    ends = ["", "\0", "\0.jsonl", "/", "/.", "%00", " ", "\n", "::$DATA", "?x", "#x"]
    climbs = [
        up * depth + target + end
        for up in ups
        for depth in (1, 2, 5, 9)
        for target, end in zip(targets, itertools.cycle(ends))
    ]
    climbs += [f"{RUN}/{climb}" for climb in climbs[::3]] + [f"{RUN}{climb}" for climb in climbs[1::3]]
    places = [
        "/etc/passwd", "//etc/passwd", "/proc/self/environ", "/proc/self/fd/0", "/proc/self/cwd/pyproject.toml",
        "/proc/self/root/etc/passwd", "/proc/kmsg", "/dev/zero", "/dev/stdin", "/dev/tty", "/dev/null", "/sys", "~",
        "~root", "~root/.ssh/id_rsa", "~nobody-at-all/x", "$HOME", "${HOME}/x", "file:///etc/passwd", "C:\\Windows",
        "http://evil.example/x.jsonl", "\\\\evil\\share\\x", "CON", "nul.jsonl", "aux", "COM1.txt", "/" * 3000,
        "../" * 2000, "a" * 20, "a" * 5000, "é" * 300, "\ud800", "\udcff.jsonl", "\u202egnp.jsonl", "\u200b", "\ufeff",
        "-rf", "\r\nX: y", "--help", "; touch x", "$(id)", "`id`", "|id", "&&id", "x' OR '1", "{{7*7}}", "{0}", "%s%n",
        '"><img src=x onerror=alert(1)>', ".", "..", "...", "", " ", "\t", "\0", "*", "?", "[a-z]", f"{RUN}\n",
        f"{RUN}\0", f" {RUN}", RUN.upper(), f"{RUN}/", f"./{RUN}", f"{RUN}/jobs", f"{RUN}/../{RUN}", f"x/../{RUN}",
    ]  # fmt: skip
    places += [place + end for place in places[:36] for end in ends[1:]]
    return list(dict.fromkeys(climbs + places))


NAMES = hostile()


def world(outside: Path, locations: Locations) -> dict[str, tuple[int, int]]:
    """Everything beside the root, and the names of runs and uploads, with size and time of what is a file."""
    paths = [path for path in outside.rglob("*") if locations.home not in path.parents and path != locations.home]
    paths += [*locations.runs.iterdir(), *locations.uploads.iterdir(), *(locations.runs / RUN).iterdir()]
    stamps = {str(path): path.lstat() for path in paths if "supervisor" not in path.name and path.suffix != ".json"}
    return {name: (one.st_size, one.st_mtime_ns) if Path(name).is_file() else (0, 0) for name, one in stamps.items()}


@pytest.fixture
def jail(tmp_path: Path, locations: Locations, make_run: Callable[..., JobFolder]) -> Iterator[Locations]:
    """A root with one finished run, and a world beside it that must not be touched."""
    (tmp_path / "secret.jsonl").write_text(json.dumps({"text": CANARY}) + "\n")
    (tmp_path / "secret").write_text(CANARY)
    (tmp_path / "secret-model").mkdir()
    (tmp_path / "secret-model" / "config.json").write_text(json.dumps({"model_type": CANARY}))
    (locations.runs / "link").symlink_to(tmp_path)
    (locations.uploads / "link-to-the-outside-1").symlink_to(tmp_path)
    make_run(past(100, finished=True), run_id=RUN, checkpoints=(100,))
    before = world(tmp_path, locations)
    yield locations
    assert world(tmp_path, locations) == before, "something beside the studio's root changed"


# ── by name ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def refused(ask: Callable[[], object]) -> str:
    """The code of the one line that it ends in."""
    with pytest.raises((Fault, ValidationError)) as caught:
        ask()
    return getattr(caught.value, "code", "invalid")


def test_names_of_runs_exports_uploads_and_checkpoints_are_ids(jail: Locations) -> None:
    assert len(NAMES) >= 1000
    store = RunStore(jail)
    user = (Message(role="user", content="x"),)
    for name in [name for name in NAMES if name != RUN]:
        assert refused(lambda name=name: store.open(name)) == "run.unknown", name
        assert refused(lambda name=name: store.delete(name)) == "run.unknown", name
        assert refused(lambda name=name: store.export_folder(RUN, name)) == "export.unknown", name
        assert refused(lambda name=name: uploaded(jail, name)) == "data.upload_gone", name
        assert refused(lambda name=name: Question(run=RUN, messages=user, checkpoint=name)) == "invalid", name
        assert refused(lambda name=name: ExportRequest(name="a", checkpoint=name)) == "invalid", name
        if name and Path(name).name != RUN:
            config = RunConfig(resume_from=name)
            assert refused(lambda config=config: _start(config, jail)) == "run.resume_from", name


def test_the_name_of_an_export_or_of_an_upload_is_never_a_path(jail: Locations) -> None:
    for name in [*NAMES, *(f"{name}.jsonl" for name in NAMES)]:
        with contextlib.suppress(ValidationError):
            made = ExportRequest(name=name).name
            assert (jail.runs / RUN / "exports" / made).resolve().parent == (jail.runs / RUN / "exports").resolve()
            assert made == made.strip()
            assert not set(made) & set("/\\~$;|&`'\"\n\0%")
        with contextlib.suppress(DataError):  # an ending that is not read here
            kept = _name(quote(name, errors="surrogatepass"))
            assert not set(kept) & set("/\\\0\n"), name
            assert not kept.startswith("."), name
            assert len(kept) <= 120, name
            assert kept.isprintable(), name


# ── by route ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Browser:
    """A browser that was let in and says whatever it likes; paths arrive as a server hands them on, decoded once."""

    def __init__(self, locations: Locations, guarded: bool) -> None:
        studio = Studio(locations, RunStore(locations), DataService(locations, guarded=True), 8765)
        door = AccessTokens(locations.sessions)
        app = application(studio, failed=pytest.fail)
        ours = [
            route
            for router in page_routes(studio)
            for route in router.routes
            if isinstance(route, APIRoute) and route.path.startswith("/studio/")
        ]
        self.routes = [(method, route.path) for route in ours for method in route.methods]
        self.routes.append(("GET", asset("{path}")))
        self.app: Any = Guard(app, door, Front(8765), lambda: "s") if guarded else app
        self.headers = [
            (b"host", b"127.0.0.1:8765"), (b"origin", b"http://127.0.0.1:8765"), (b"content-type", b"application/json"),
            (b"cookie", f"luthier_8765={door.enter(door.token())}".encode()),
        ]  # fmt: skip

    async def ask(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, str]:
        sent: list[dict[str, Any]] = []
        content = json.dumps(body).encode()

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": content, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        asked = "&".join(f"{key}={quote(value, errors='surrogatepass')}" for key, value in query.items()).encode()
        scope = {
            "type": "http", "method": method, "path": path, "root_path": "", "query_string": asked, "scheme": "http",
            "headers": self.headers, "server": ("127.0.0.1", 8765), "client": ("127.0.0.1", 1), "http_version": "1.1",
        }  # fmt: skip
        await self.app(scope, receive, send)
        answer = b"".join(message.get("body", b"") for message in sent)
        return int(sent[0]["status"]), answer.decode("utf-8", "replace")


@pytest.mark.parametrize("share", [8, pytest.param(1, marks=pytest.mark.slow)])
def test_a_thousand_names_in_the_routes_touch_nothing(jail: Locations, share: int) -> None:
    """Each route gets an eighth of the names, the next one another eighth; with ``-m slow`` each gets all."""
    browser = Browser(jail, guarded=True)
    names, named = [name for name in NAMES if name != RUN], [one for one in browser.routes if "{" in one[1]]
    assert len(named) >= 2 * share

    async def all_of_them() -> None:
        for number, (method, route) in enumerate(named):
            for name in names[number % share :: share]:
                path = re.sub(r"\{\w+\}", lambda _, name=name: name, route)
                status, answer = await browser.ask(method, path, {}, {"name": "a"})
                assert status in (403, 404, 405, 409, 422), (method, path, status)
                assert CANARY not in answer
                assert "root:x:" not in answer

    run_apart(all_of_them())


def test_names_in_queries_and_bodies_touch_nothing(jail: Locations) -> None:
    """Some of them, past the guard too: every route stands for itself."""
    browser = Browser(jail, guarded=False)
    reading = [path for method, path in browser.routes if method == "GET" and path.startswith("/studio/")]
    user = [{"role": "user", "content": "x"}]

    async def all_of_them() -> None:
        for name in [name for name in NAMES[::61] if name != RUN]:
            plain = name.replace("/", "").replace("\n", "")  # with more segments it would be another route
            for path in reading:
                query = dict.fromkeys(("run", "runs", "a", "b", "tag", "name", "id", "ids"), name)
                status, answer = await browser.ask("GET", re.sub(r"\{\w+\}", RUN, path), query, None)
                assert status in (200, 400, 404, 409, 422), (path, name, status)
                assert CANARY not in answer
            for body in ({"run": name, "messages": user}, {"run": RUN, "checkpoint": name, "messages": user}):
                status, answer = await browser.ask("POST", "/studio/ask", {}, body)
                assert status in (404, 409, 422), (body, status)
            for body in ({"name": name}, {"name": "a", "checkpoint": name}, {"name": "a", "form": name}):
                status, answer = await browser.ask("POST", f"/studio/run/{plain or 'x'}/export", {}, body)
                assert status in (404, 409, 422), (body, status)

    run_apart(all_of_them())


# ── typed paths ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataService]:
    made = DataService(Locations(tmp_path_factory.mktemp("service")).make(), guarded=True)
    yield made
    made.close()


def no_data(folder: Path) -> list[Path]:
    """What is no data file, in every way."""
    (folder / "folder.jsonl").mkdir()
    (folder / "empty.jsonl").touch()
    (folder / "blank.csv").write_text(" \n\n")
    (folder / "broken.jsonl").write_text("{no json\n" * 3)
    (folder / "broken.json").write_text('[{"a": 1}, {"a"')
    (folder / "broken.parquet").write_bytes(b"PAR1 and then nothing of it")
    (folder / "other.json").write_text('{"a": {"b": 1}, "c"')
    (folder / "binary.jsonl").write_bytes(b"\x7fELF\0\0\0")
    (folder / "passwords").write_text("root:x:0:0\n")
    (folder / "closed.jsonl").write_text('{"text": "a"}\n')
    (folder / "closed.jsonl").chmod(0)
    os.mkfifo(folder / "pipe.jsonl")
    os.mknod(folder / "socket.jsonl", stat.S_IFSOCK | 0o600)  # bound, its path could have no more than 107 bytes
    (folder / "loop.jsonl").symlink_to(folder / "loop.jsonl")
    (folder / "nowhere.jsonl").symlink_to(folder / "not-there")
    for name, target in (("device", "/dev/zero"), ("passwd", "/etc/passwd"), ("environ", "/proc/self/environ")):
        (folder / f"{name}.jsonl").symlink_to(target)
    closed = [] if os.geteuid() else [folder / "closed.jsonl"]  # root reads everything
    return [folder / "not-there.jsonl", *sorted(set(folder.iterdir()) - set(closed))]


def test_a_refused_data_file_has_the_same_words_whatever_lies_there(service: DataService, tmp_path: Path) -> None:
    said: set[tuple[str, str, str]] = set()
    for path in [*no_data(tmp_path), *map(Path, NAMES)]:
        with pytest.raises(DataError) as caught:
            service.first_look(path, DataChoice())
        error = caught.value
        assert error.message.isprintable()
        said.add((error.code, error.message.split(" at ")[0] + error.message.rsplit(", ", 1)[1], error.hint))
        if tmp_path in path.parents:
            assert str(path) in error.message
            assert refused(lambda path=path: service.report(path, DataChoice())) == error.code
    assert len(said) == 1, said


def test_what_is_wrong_with_a_file_of_ours_is_said(service: DataService) -> None:
    kept = service._locations.data / "broken.jsonl"
    kept.write_text("{no json\n")
    with pytest.raises(DataError, match="at row 1"):
        service.report(kept, DataChoice())


def test_a_refused_model_folder_has_the_same_words_whatever_lies_there(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "long").mkdir()
    said: set[tuple[str, str, str]] = set()
    names = [str(tmp_path / name) for name in ("empty", "file", "loop", "not-there", "file/below")]
    for name in [*names, *(name for name in NAMES if name.startswith("/"))]:
        with pytest.raises(ModelError) as caught:
            find_model("folder", name)
        error = caught.value
        said.add((error.code, error.message.split(" at ")[0], error.hint))
    assert len(said) == 1, said
    for name in NAMES:
        with pytest.raises((ModelError, RunError)):
            find_model("folder", name)
