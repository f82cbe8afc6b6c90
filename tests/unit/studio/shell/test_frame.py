"""The frame: parts escape, pages are dressed, the policy names what may run, files of ours only."""

import base64
import hashlib
import re
import struct
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.responses import HTMLResponse
from hypothesis import given
from hypothesis import strategies as st
from starlette.middleware import Middleware
from starlette.testclient import TestClient

from core.contract.errors import ConfigError
from core.machine.locations import ASSETS
from studio.server.access.routes import is_allowed
from studio.server.browser import commands
from studio.server.pages import OurFiles
from studio.shell import assets
from studio.shell.assets import asset
from studio.shell.frame import PAGES, document, head
from studio.shell.installed import MANIFEST, manifest, manifest_route
from studio.shell.markup import Markup, fault, join, tag
from studio.shell.responses import Dressed, Sealed, Shell, dress, gradio_policy, plain_policy

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
    told = {"code": "config.faults", "message": "Two <faults>", "hint": "Mend.", "problems": ["a < b", "c"]}
    drawn = fault(ConfigError.told_by(told))
    assert "Two &lt;faults&gt;" in drawn
    assert "<li>a &lt; b</li><li>c</li>" in drawn


def test_a_live_page_names_all_modules_of_its_script_at_once() -> None:
    """Found one after another, they were four journeys; and what other pages need is not loaded at all."""
    page = document("/history", tag("section", data_live="history"), {})
    named = re.findall(rf'<link rel="modulepreload" href="{asset("js/")}([\w/]+\.js)">', page)
    assert {"pages/history.js", "pages/history/compare.js", "chart.js", "scale.js", "dom.js", "notice.js"} <= set(named)
    assert len(set(named)) == len(named)
    assert "pages/watch.js" not in named
    for script in named:  # every import of every one of them is among them
        source = (ASSETS / "js" / script).read_text()
        imported = {(ASSETS / "js" / script).parent / path for path in re.findall(r' from "(.+)";', source)}
        assert {path.resolve() for path in imported} <= {(ASSETS / "js" / name).resolve() for name in named}
    assert page.index("modulepreload") < page.index('type="module"')
    assert "modulepreload" not in document("/x", tag("p", "no script of its own"), {})


def test_a_page_gets_our_head_and_header_and_loses_other_sites() -> None:
    page = dress(PAGE, tag("p", "coming"), {})
    assert "https://" not in page
    assert page.index("boot.js") < page.index("window.a"), "the reading of Function comes before Gradio"
    assert '<a href="/" aria-current="page">' in page
    assert "<title>New run · Luthier</title>" in page
    assert 'crossorigin="use-credentials"' in page
    assert '<main class="plain" data-outline><p>coming</p></main><gradio-app>' in page


def test_the_policy_allows_the_pages_scripts_by_hash_and_no_others() -> None:
    made = gradio_policy("<script>window.a = 1</script><script src='x.js'></script>")
    assert "unsafe" not in plain_policy()
    assert "require-trusted-types-for 'script'; trusted-types 'none'" in plain_policy()
    script = next(part for part in made.split("; ") if part.startswith("script-src"))
    digest = base64.b64encode(hashlib.sha256(b"window.a = 1").digest()).decode()
    assert script == f"script-src 'self' 'sha256-{digest}'"
    assert "'unsafe-inline'" not in script


@pytest.mark.parametrize("made", [gradio_policy("<script>1</script>"), plain_policy()])
def test_both_policies_shut_what_no_page_of_ours_needs(made: str) -> None:
    parts = dict(part.split(" ", 1) for part in made.split("; "))
    assert parts["default-src"] == parts["object-src"] == parts["frame-ancestors"] == "'none'"
    assert parts["base-uri"] in ("'none'", "'self'")
    assert parts["connect-src"] == parts["form-action"] == "'self'"
    assert "unsafe-eval" not in made
    assert "'unsafe-inline'" not in parts["script-src"]
    assert "http" not in made
    assert "*" not in made


def test_every_answer_carries_the_headers() -> None:
    app = FastAPI(middleware=[Middleware(Sealed), Middleware(Shell), Middleware(Dressed, outline=Markup, now=dict)])
    app.get("/", response_class=HTMLResponse)(lambda: PAGE)
    app.get("/watch", response_class=HTMLResponse)(lambda: "<p>x</p>")
    app.get("/studio/x")(lambda: {"a": 1})
    client = TestClient(app)
    page, plain, data = client.get("/"), client.get("/watch"), client.get("/studio/x")
    assert int(page.headers["content-length"]) == len(page.content)
    assert "sha256-" in page.headers["content-security-policy"]
    assert plain.headers["content-security-policy"] == plain_policy()
    assert data.headers["content-security-policy"].startswith("default-src 'none'; ")
    assert page.headers["cache-control"] == plain.headers["cache-control"] == "no-store"
    assert "aria-current" in page.text
    for answer in (page, plain, data, client.get("/nowhere")):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"


def test_only_files_for_the_browser_are_served() -> None:
    client = TestClient(OurFiles(directory=ASSETS))
    assert client.get("/studio.css").headers["content-type"] == "text/css; charset=utf-8"
    assert client.get("/icons.svg").status_code == 200
    assert client.get("/starter/model.safetensors").status_code == 404
    assert client.get("/starter/make_starter.py").status_code == 404
    assert client.get("/samples/instruction.jsonl").status_code == 404


def test_a_browser_keeps_a_file_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for answer in (TestClient(OurFiles(directory=ASSETS)).get("/studio.css"), shelled("/assets/index-a1b2.js")):
        assert answer.headers["cache-control"] == assets.KEPT
    assert shelled("/assets/none.js", 404).headers.get("cache-control") is None
    monkeypatch.setattr(assets, "ASSETS", tmp_path)
    found = set()
    for name, content in (("a.css", "p"), ("a.css", "q"), ("js/a.js", "q"), ("README.md", "not served")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
        found.add(assets.version.__wrapped__())
    assert len(found) == 3
    assert asset("x.css") == f"/studio/assets/{assets.version()}/x.css"


def shelled(path: str, status: int = 200) -> Any:
    """An answer of Gradio's within our layer."""
    app = FastAPI(middleware=[Middleware(Shell)])
    app.get(path, status_code=status)(lambda: "x")
    return TestClient(app).get(path)


def test_wsl_opens_the_browser_of_windows_and_linux_its_own() -> None:
    every = {name: f"/bin/{name}" for name in ("wslview", "powershell.exe", "xdg-open", "open")}.get
    address = "http://127.0.0.1:8765/enter?token=a-b"
    assert commands(address, True, "linux", every)[0] == ["/bin/wslview", address]
    assert commands(address, True, "linux", every)[1][-1] == f"Start-Process '{address}'"
    assert commands(address, False, "linux", every) == [["/bin/xdg-open", address]]
    assert commands(address, False, "darwin", every) == [["/bin/open", address]]
    assert commands(address, False, "linux", lambda _: None) == []


# ── an application of the browser ────────────────────────────────────────────────────────────────────────────────────


def test_the_manifest_is_ours_and_can_be_installed() -> None:
    app = FastAPI()
    app.include_router(manifest_route())
    answer = TestClient(app).get(MANIFEST)
    assert answer.headers["content-type"].startswith("application/manifest+json")
    assert answer.json() == manifest()
    assert (manifest()["name"], manifest()["display"], manifest()["start_url"]) == ("Luthier", "standalone", "/")
    assert is_allowed("GET", MANIFEST)
    assert {shortcut["url"] for shortcut in manifest()["shortcuts"]} <= set(PAGES)
    named = re.findall(r'<link rel="manifest"[^>]*>', head())
    assert named == [f'<link rel="manifest" crossorigin="use-credentials" href="{MANIFEST}">']


def test_every_icon_is_a_picture_of_the_size_it_names() -> None:
    for icon in manifest()["icons"]:
        file = ASSETS / icon["src"].removeprefix(asset(""))
        assert is_allowed("GET", icon["src"])
        if file.suffix == ".png":
            bytes_ = file.read_bytes()
            assert bytes_.startswith(b"\x89PNG\r\n")
            assert "{}x{}".format(*struct.unpack(">II", bytes_[16:24])) == icon["sizes"]
        else:
            assert "<svg" in file.read_text()
    assert {icon.get("purpose", "") for icon in manifest()["icons"]} >= {"any", "maskable"}
