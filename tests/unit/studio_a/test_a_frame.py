"""The frame: parts escape, pages are dressed, the policy names what may run, files of ours only."""

from __future__ import annotations

import base64
import hashlib

import pytest
from fastapi import FastAPI
from fastapi.responses import HTMLResponse
from hypothesis import given
from hypothesis import strategies as st
from starlette.middleware import Middleware
from starlette.testclient import TestClient

from core.contract.errors import ConfigError, DataError
from core.locations import ASSETS
from studio.browser import commands
from studio.files import OurFiles
from studio.markup import Markup, fault, join, tag
from studio.shell import Dressed, Shell, dress, policy
from studio.text import STATES, say
from studio.words_runs import RUNS
from studio.words_start import START

PAGE = (
    '<html><head><meta property="og:image" content="https://raw.githubusercontent.com/x.png" />'
    '<link rel="manifest" href="/manifest.json" /><script>window.a = 1</script>'
    '<script type="module" src="./a.js"></script></head><body style="x"><gradio-app></gradio-app></body></html>'
)


@given(st.text())
def test_text_never_becomes_markup(text: str) -> None:
    drawn = tag("p", text, title=text)
    inner = drawn.removeprefix('<p title="').removesuffix("</p>")
    assert "<" not in inner
    assert inner.count('"') == 1


def test_markup_is_kept_and_none_left_out() -> None:
    assert join(tag("b", "x & y"), None, "<i>") == "<b>x &amp; y</b>&lt;i&gt;"
    assert tag("input", type="file", disabled=True, checked=False, for_="a", data_x="1") == (
        '<input type="file" disabled for="a" data-x="1">'
    )
    assert isinstance(tag("p"), Markup)


def test_a_fault_names_all_problems_as_text() -> None:
    drawn = fault(ConfigError("config.faults", "Two <faults>", "Mend.", ["a < b", "c"]))
    assert "Two &lt;faults&gt;" in drawn
    assert "<li>a &lt; b</li><li>c</li>" in drawn
    assert "Traceback" not in fault(DataError("data.x", "line", "hint"))


def test_a_page_gets_our_head_and_header_and_loses_other_sites() -> None:
    page = dress(PAGE, "/", tag("p", "coming"))
    assert "https://" not in page
    assert page.index("boot.js") < page.index("window.a"), "the reading of Function comes before Gradio"
    assert '<a href="/" aria-current="page">' in page
    assert "<title>New run · Luthier</title>" in page
    assert 'crossorigin="use-credentials"' in page
    assert '<main class="plain" data-outline><p>coming</p></main><gradio-app>' in page


def test_the_policy_allows_the_pages_scripts_by_hash_and_no_others() -> None:
    made = policy("<script>window.a = 1</script><script src='x.js'></script>")
    script = next(part for part in made.split("; ") if part.startswith("script-src"))
    digest = base64.b64encode(hashlib.sha256(b"window.a = 1").digest()).decode()
    assert script == f"script-src 'self' 'sha256-{digest}'"
    assert "unsafe-eval" not in made
    assert "'unsafe-inline'" not in script
    assert "frame-ancestors 'none'" in made


def test_every_answer_carries_the_headers() -> None:
    layers = [Middleware(Shell, is_page=("/",).__contains__), Middleware(Dressed, outline=Markup)]
    app = FastAPI(middleware=layers)
    app.get("/", response_class=HTMLResponse)(lambda: PAGE)
    app.get("/studio/x")(lambda: {"a": 1})
    client = TestClient(app)
    page, data = client.get("/"), client.get("/studio/x")
    assert int(page.headers["content-length"]) == len(page.content)
    assert "sha256-" in page.headers["content-security-policy"]
    assert page.headers["cache-control"] == "no-store"
    assert "aria-current" in page.text
    assert "content-security-policy" not in data.headers
    for answer in (page, data):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"


def test_only_files_for_the_browser_are_served() -> None:
    client = TestClient(OurFiles(ASSETS))
    assert client.get("/studio.css").headers["content-type"] == "text/css; charset=utf-8"
    assert client.get("/icons.svg").status_code == 200
    assert client.get("/starter/model.safetensors").status_code == 404
    assert client.get("/starter/make_starter.py").status_code == 404
    assert client.get("/samples/instruction.jsonl").status_code == 404


def test_nothing_is_loaded_from_outside() -> None:
    for path in [*ASSETS.glob("*.css"), *ASSETS.rglob("*.js"), *ASSETS.glob("*.svg")]:
        text = path.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text, path
        assert "https:" not in text, path


def test_words_stand_once_and_say_looks_them_up() -> None:
    assert START.keys().isdisjoint(RUNS)
    assert say("data.row", row=3) == "Row 3"
    with pytest.raises(KeyError):
        say("no.such.word")
    assert set(STATES) == {"queued", "starting", "training", "paused", "finished", "stopped", "failed", "lost"}


def test_wsl_opens_the_browser_of_windows_and_linux_its_own() -> None:
    every = {name: f"/bin/{name}" for name in ("wslview", "powershell.exe", "xdg-open", "open")}.get
    address = "http://127.0.0.1:8765/enter?token=a-b"
    assert commands(address, True, "linux", every)[0] == ["/bin/wslview", address]
    assert commands(address, True, "linux", every)[1][-1] == f"Start-Process '{address}'"
    assert commands(address, False, "linux", every) == [["/bin/xdg-open", address]]
    assert commands(address, False, "darwin", every) == [["/bin/open", address]]
    assert commands(address, False, "linux", lambda _: None) == []
