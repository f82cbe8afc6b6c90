"""``--listen``: a password of which only a hash is kept, TLS or a word, hosts by name, guesses at a bounded rate."""

import getpass
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from made_routes import browser_of
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from core.contract.errors import MachineError
from core.machine.locations import REPOSITORY, Locations
from studio.__main__ import main as start
from studio.server.access import listening
from studio.server.access import password as password_module
from studio.server.access.guard import Guard
from studio.server.access.listening import Front, Wish, front_of, means, names_of
from studio.server.access.password import Password
from studio.server.access.sessions import AccessTokens
from studio.server.app import bind
from studio.server.living import living_studio, remember
from studio.shell.responses import Sealed

WORDS = "four words of mine"
OPEN = Wish(address="10.0.0.5", names=("desk.lan",), without_tls=True)


@pytest.fixture
def cheap_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hash of a hundredth of its cost; ``test_the_password_comes_from_there`` takes the whole for the terminal."""
    monkeypatch.setattr(password_module, "_N", 1 << 8)


@pytest.fixture
def kept(cheap_hash: None, locations: Locations) -> Password:
    made = Password(locations.password)
    made.keep(WORDS)
    return made


# ── asking for it ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_without_listen_there_is_loopback_and_nothing_else(locations: Locations) -> None:
    front = front_of(Wish(), 8765, locations)
    assert front == Front(8765)
    assert front.hosts == {"127.0.0.1:8765", "localhost:8765"}
    with bind(0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


def test_listening_wants_tls_or_the_word_for_going_without(locations: Locations) -> None:
    with pytest.raises(MachineError) as caught:
        front_of(Wish(address="0.0.0.0"), 8765, locations)
    assert "--tls-cert" in caught.value.message
    assert "--listen-without-tls" in caught.value.hint


def test_a_host_is_an_address_of_ours_or_a_name_that_was_given() -> None:
    assert names_of(OPEN, ["192.168.1.2"]) == ("10.0.0.5", "desk.lan")
    assert names_of(Wish(address="0.0.0.0", names=("Desk.LAN",)), ["192.168.1.2"]) == ("192.168.1.2", "desk.lan")
    assert names_of(Wish(address="::1"), []) == ("[::1]",)
    for name in ("desk.lan:80", "http://desk", "a b", "", "*", "*.lan", "desk/", "é.lan", "a@b", "x\n"):
        with pytest.raises(MachineError, match="Expected a name"):
            names_of(Wish(address="0.0.0.0", names=(name,)), [])


@pytest.mark.parametrize("way", ["LUTHIER_PASSWORD", "LUTHIER_PASSWORD_FILE", "terminal"])
def test_the_password_comes_from_there_and_only_its_hash_stays(
    way: str, locations: Locations, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    (tmp_path / "password").write_text(WORDS + "\n")
    if way == "terminal":
        a_terminal(monkeypatch, WORDS, WORDS)
    else:
        request.getfixturevalue("cheap_hash")
        monkeypatch.setenv(way, str(tmp_path / "password") if way.endswith("FILE") else WORDS)
    front = front_of(OPEN, 8765, locations)
    assert front.password is not None
    assert front.password.judge(WORDS, "a") == "right"
    assert front.password.judge(WORDS + " ", "a") == "wrong"
    assert way not in listening.os.environ, "what we start does not inherit it"
    assert WORDS not in locations.password.read_text("utf-8")
    assert stat.S_IMODE(locations.password.stat().st_mode) == 0o600
    again = front_of(OPEN, 8765, locations)
    assert again.password is not None
    assert again.password.judge(WORDS, "a") == "right", "asked for once"
    said = means(again, OPEN)
    assert "not encrypted" in said
    assert "http://10.0.0.5:8765/" in said
    assert WORDS not in said


def a_terminal(monkeypatch: pytest.MonkeyPatch, *typed: str) -> None:
    """Where these are typed one after the other; no terminal at all where nothing is."""
    answers = iter(typed)
    monkeypatch.setattr(sys, "stdin", type("Standard", (), {"isatty": lambda _: bool(typed)})())
    monkeypatch.setattr(getpass, "getpass", lambda _: next(answers))


@pytest.mark.parametrize(
    ("given", "typed", "said"),
    [
        ({"LUTHIER_PASSWORD": "abc"}, (), "at least 10 characters, found 3"),
        ({"LUTHIER_PASSWORD": " " * 12}, (), "at least 10 characters, found 0"),
        ({"LUTHIER_PASSWORD": "\t\n" * 8}, (), "at least 10 characters, found 0"),
        ({"LUTHIER_PASSWORD": "a" + " " * 20}, (), "at least 10 characters, found 1"),
        ({"LUTHIER_PASSWORD_FILE": "/not/there"}, (), "cannot be read"),
        ({"LUTHIER_PASSWORD_FILE": "/dev/null"}, (), "cannot be read"),
        ({}, (), "no terminal to ask at"),
        ({}, ("the first one", "another one"), "found two"),
    ],
)
def test_a_password_that_is_none_is_one_line(
    given: dict[str, str], typed: tuple[str, ...], said: str, locations: Locations, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_terminal(monkeypatch, *typed)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(MachineError, match=said):
        front_of(OPEN, 8765, locations)
    assert not locations.password.exists()


@pytest.mark.parametrize(
    "words",
    [
        ["--name", "desk"], ["--tls-cert", "a"], ["--listen-without-tls"], ["--listen", "--tls-cert", "a"],
        ["--listen", "--tls-cert", "a", "--tls-key", "b", "--listen-without-tls"], ["--listen", "--password", "x"],
    ],
)  # fmt: skip
def test_options_that_do_not_go_together_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        start(words)
    assert caught.value.code == 2
    assert len(capsys.readouterr().err.strip().splitlines()[-1]) > 20


# ── knocking ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_guesses_are_bounded_by_address_and_in_all(locations: Locations, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(password_module, "_hash", lambda words, _: words.encode())  # the real one takes its time
    now = [1000.0]
    password = Password(locations.password, lambda: now[0])
    password.keep(WORDS)
    assert [password.judge("wrong", "a") for _ in range(6)] == ["wrong"] * 5 + ["wait"]
    assert password.judge(WORDS, "a") == "wait", "the right one waits too, or a guess could tell"
    assert password.judge(WORDS, "b") == "right", "another address is not locked out"
    now[0] += 30.5
    assert [password.judge(WORDS, "a"), password.judge(WORDS, "a")] == ["right", "wait"]
    now[0] += 1e6
    many = [password.judge("wrong", f"address {number}") for number in range(30)]
    assert many.count("wrong") == 20, "all together"


@pytest.fixture
def visitor(door: AccessTokens, kept: Password) -> TestClient:
    """Another machine's browser, at a studio that listens under TLS."""
    front = Front(8765, ("desk.lan",), certificate=Path("cert.pem"), key=Path("key.pem"), password=kept)
    guard = Guard(PlainTextResponse("inside"), door, front, lambda: "s")
    return TestClient(Sealed(guard), base_url="https://desk.lan:8765", follow_redirects=False)


OWN = {"origin": "https://desk.lan:8765"}


def test_the_password_lets_a_browser_in_with_a_secure_cookie(visitor: TestClient) -> None:
    page = visitor.get("/", headers={"accept": "text/html"})
    assert page.status_code == 403
    assert '<form method="post" action="/enter">' in page.text
    assert "<script" not in page.text
    assert page.headers["referrer-policy"] == "same-origin", "with no-referrer a form would send Origin: null"
    wrong = visitor.post("/enter", data={"password": "a guess of mine"}, headers=OWN)
    assert wrong.status_code == 403
    assert "not the password" in wrong.text
    assert "set-cookie" not in wrong.headers
    right = visitor.post("/enter", data={"password": WORDS}, headers=OWN)
    assert right.status_code == 200
    cookie = right.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "; secure" in cookie
    assert visitor.get("/").text == "inside"


@pytest.mark.parametrize(
    "headers",
    [
        *({"origin": origin} for origin in ("null", "http://desk.lan:8765", "https://evil.example")),
        *({**OWN, "host": host} for host in ("evil.example:8765", "desk.lan", "DESK.lan:8765", "10.0.0.5:8765")),
        {},
    ],
)
def test_the_password_is_taken_of_our_own_page_under_a_name_of_ours(
    visitor: TestClient, headers: dict[str, str]
) -> None:
    answer = visitor.post("/enter", data={"password": WORDS}, headers=headers)
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


def test_too_many_guesses_are_told_to_wait_and_too_much_is_not_read(
    visitor: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(password_module, "_hash", lambda words, _: words.encode())
    said = [visitor.post("/enter", data={"password": "x"}, headers=OWN).text for _ in range(6)]
    assert "Too many tries" in said[-1]
    assert visitor.post("/enter", content=b"password=" + b"x" * 10_000, headers=OWN).status_code == 403


@pytest.mark.usefixtures("kept")
def test_without_listen_no_password_opens(door: AccessTokens) -> None:
    client = browser_of(door)
    answer = client.post("/enter", data={"password": WORDS}, headers={"origin": str(client.base_url)})
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


# ── TLS ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """A self-signed certificate and its key, by the openssl that comes with the system."""
    if not shutil.which("openssl"):
        pytest.skip("no openssl here to make a certificate with")
    cert, key = folder / f"{name}.pem", folder / f"{name}-key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    made = ["-keyout", key, "-out", cert, "-days", "2", "-subj", f"/CN={name}"]
    subprocess.run([*command, *map(str, made)], check=True, capture_output=True)
    return cert, key


@pytest.fixture
def served(
    door: AccessTokens, serve: Callable[..., int], locations: Locations, kept: Password, tmp_path: Path
) -> Iterator[Front]:
    """A guard that serves under TLS, remembered as this process's studio."""
    cert, key = certificate(tmp_path, "desk.lan")
    fronts: list[Front] = []

    def make(port: int) -> Sealed:
        fronts.append(Front(port, ("desk.lan",), cert, key, kept))
        return Sealed(Guard(PlainTextResponse("inside"), door, fronts[0], lambda: "the secret"))

    serve(make, ssl_certfile=cert, ssl_keyfile=key)
    with remember(locations, fronts[0], "the secret"):
        yield fronts[0]


def test_a_second_start_asks_the_living_studio_under_its_own_certificate_alone(
    served: Front, door: AccessTokens, locations: Locations, tmp_path: Path
) -> None:
    address = living_studio(locations)
    assert address is not None
    assert address.startswith(f"https://127.0.0.1:{served.port}/enter?token=")
    assert door.enter(address.split("token=")[1])
    assert served.certificate is not None
    other, _ = certificate(tmp_path, "other")
    served.certificate.write_bytes(other.read_bytes())
    assert living_studio(locations) is None, "the secret goes to nobody else"


def test_files_that_are_no_certificate_are_one_line(
    locations: Locations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUTHIER_PASSWORD", WORDS)
    (tmp_path / "cert.pem").write_text("no certificate")
    cert, key = certificate(tmp_path, "desk.lan")
    _, other = certificate(tmp_path, "other")
    for pair in ((tmp_path / "cert.pem", key), (cert, tmp_path / "gone"), (cert, other)):
        with pytest.raises(MachineError, match="Expected a certificate and its key"):
            front_of(Wish("10.0.0.5", (), *pair), 8765, locations)
    assert front_of(Wish("10.0.0.5", (), cert, key), 8765, locations).scheme == "https"


def test_nothing_of_ours_launches_or_shares_by_gradio() -> None:
    """``launch`` is what opens Gradio's tunnels; the page is mounted, behind the guard, and served by us."""
    opens = re.compile(r"\.(launch|queue_and_launch|setup_tunnel)\(|\bshare\s*=\s*True")
    assert [path for path in (REPOSITORY / "studio").rglob("*.py") if opens.search(path.read_text("utf-8"))] == []
