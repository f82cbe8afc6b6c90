"""The door in a real browser: an evil page on another port and under another name, and names that would be code.

The first wall is that names are text (no element of theirs ever stands in a page), the second the content policy (no
page breaks it), the third the guard: whatever another site's page tries is answered with 403 and changes nothing.
"""

from __future__ import annotations

import http.server
import json
import shlex
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from driving import RunningStudio, running_studio
from made_runs import past, write_run
from visiting import at_rest, enter

from core.cli.commands import main as command_line
from core.contract.config import DataChoice, ModelChoice, RunConfig, TrainChoice
from core.contract.events import Correction, Failed, Hello, Note, Plan, Sample, Stage
from core.machine.locations import Locations
from core.runs.folder.run_yaml import dump_config

pytestmark = pytest.mark.browser

EVIL = (
    '"\'><img src=x onerror="window.ran=1"><script>window.ran=1</script><svg onload=window.ran=1></svg>'
    '</script></title></textarea></style><a href="javascript:window.ran=1">a</a>{{7*7}}${7*7}<%=7%>&lt;b&gt;\u202etxt'
)
RUN, FAILED = "2026-11-20_2243_living_k3f9", "2026-11-18_2243_failed_k3f9"
PAGES = (
    f"/watch?run={RUN}", f"/watch?run={FAILED}", f"/try?run={RUN}", f"/take-home?run={RUN}", "/history", "/doctor",
    "/proof", "/glossary",
)  # fmt: skip
NAMELESS = ("/doctor", "/proof", "/glossary")
"""Pages that show nothing which somebody else named."""
INJECTED = "img[src=x], svg[onload], [onerror], [onload], a[href^='javascript:'], script:not([src])"
WATCHING = (
    "window.broken = [];"
    "addEventListener('securitypolicyviolation', e => broken.push(e.violatedDirective + ' ' + e.blockedURI))"
)
SHOWN = (
    "() => document.body.innerText.includes('<img src=x')"
    " || [...document.querySelectorAll('input, textarea')].some(field => field.value.includes('<img src=x'))"
)


def write_evil(locations: Locations) -> None:
    """Runs and a draft in which everything that has a name is called EVIL."""
    config = RunConfig(
        name=EVIL, preset=EVIL, resume_from=EVIL, model=ModelChoice(source="hub", name=EVIL, revision=EVIL),
        data=DataChoice(path=f"/nowhere/{EVIL}.jsonl", system_prompt=EVIL, columns={"prompt": EVIL, EVIL: EVIL}),
        train=TrainChoice(max_steps=7),
    )  # fmt: skip
    said: list[Any] = [
        Hello(at=1.8e9, attempt=1, pid=1, device="cpu", device_name=EVIL),
        Plan(at=1.8e9, attempt=1, lines=(EVIL,), total_steps=100, train_rows=9),
        Stage(at=1.8e9, attempt=1, stage="loading", text=EVIL),
        Note(at=1.8e9, attempt=1, code="x", text=EVIL, hint=EVIL),
        Correction(at=1.8e9, attempt=1, step=3, key="train.tokens_per_pass", old=EVIL, new=EVIL, reason=EVIL),
        Sample(at=1.8e9, attempt=1, step=3, command_id="x", side="base", text=EVIL, done=True),
    ]
    fault = Failed(at=1.9e9, attempt=1, code=EVIL, message=EVIL, hint=EVIL)
    for run_id, events in (
        (RUN, [*past(100, finished=True)[:4], *said, *past(100, finished=True)[4:]]),
        (FAILED, [*past(100), *said, fault]),
    ):
        folder = write_run(locations, events, run_id, EVIL, checkpoints=(100,))
        folder.run_yaml.write_text(dump_config(config), encoding="utf-8")
    locations.draft.write_text(json.dumps({"draft_id": EVIL, "config": config.model_dump(mode="json")}))


class EvilSite(http.server.BaseHTTPRequestHandler):
    """Another site: one page, whatever is asked."""

    def do_GET(self) -> None:
        page = b"<!doctype html><title>evil</title><body>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_: Any) -> None:
        """Quiet."""


@dataclass
class House:
    """The studio, a browser that was let in, and another site that the same browser visits."""

    studio: RunningStudio
    context: Any
    evil_port: int
    locations: Locations
    tab: Any

    def page(self, path: str) -> Any:
        """A page of ours, in the tab that shows all of them, with what the browser complains of."""
        at_rest(self.tab, self.studio)
        self.tab.complaints.clear()
        self.tab.answer = self.tab.goto(self.studio.root + path)
        return self.tab


@pytest.fixture(scope="module")
def house(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    locations = Locations(tmp_path_factory.mktemp("home")).make()
    write_evil(locations)
    site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), EvilSite)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    with running_studio(
        locations.home, GRADIO_SHARE="True", GRADIO_TEMP_DIR=str(locations.home / "gradio"), HF_HUB_OFFLINE="1"
    ) as studio:
        context = browser.new_context()
        tab = context.new_page()
        enter(tab, studio)
        assert "token" not in tab.evaluate("() => location.href + document.referrer + document.cookie")
        tab.set_default_timeout(60_000)
        tab.complaints = []
        tab.on("console", lambda said: "Content Security" in said.text and tab.complaints.append(said.text))
        tab.add_init_script(WATCHING)
        yield House(studio, context, site.server_address[1], locations, tab)
        context.close()
    site.shutdown()


# ── escaping, and the policy behind it ───────────────────────────────────────────────────────────────────────────────


def shows_it_as_text(page: Any) -> None:
    """The evil name is drawn, and nothing in it became an element."""
    page.wait_for_function(SHOWN)
    harmless(page)


def harmless(page: Any) -> None:
    page.wait_for_timeout(200)
    found = page.evaluate("s => [...document.querySelectorAll(s)].map(e => e.outerHTML.slice(0, 200))", INJECTED)
    ours = [piece for piece in found if "window.ran" in piece or 'src="x"' in piece]
    assert ours == [], page.url
    assert page.evaluate("() => window.ran") is None, page.url
    assert page.evaluate("() => window.broken") == [], page.url
    assert page.complaints == [], page.url


def keeps_its_policy(page: Any) -> None:
    policy = dict(part.strip().split(" ", 1) for part in page.answer.headers["content-security-policy"].split(";"))
    assert "unsafe" not in policy["script-src"]
    assert "unsafe-eval" not in str(policy)
    assert policy["frame-ancestors"] == policy["object-src"] == policy["default-src"] == "'none'"
    assert page.answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", PAGES)
def test_evil_names_are_text_on_every_page_and_every_page_keeps_its_policy(house: House, path: str) -> None:
    page = house.page(path)
    keeps_its_policy(page)
    if path == "/history":
        page.locator("summary").first.click()
    if path.startswith("/watch"):
        page.locator("[data-f=log-box] summary").click()
    if path in NAMELESS:
        page.locator("main").first.wait_for()
        harmless(page)
    else:
        shows_it_as_text(page)


def test_a_typed_name_is_one_word_of_the_command_line(house: House) -> None:
    page = house.page(f"/take-home?run={RUN}")
    page.wait_for_function("() => document.querySelector('[data-f=command]')?.textContent.includes('--name')")
    page.locator("[data-f=name]").fill("a'; touch $(x)")
    page.locator("[data-f=name]").press("Tab")
    words = shlex.split(page.locator("[data-f=command]").text_content())
    assert words[words.index("--name") + 1 :] == ["a'; touch $(x)"]


def test_evil_rows_columns_files_and_models_are_text_on_new_run(house: House, tmp_path: Path) -> None:
    page = house.page("/")
    keeps_its_policy(page)
    page.wait_for_function("() => document.querySelector('#model-about')?.innerText.includes('<img src=x')")
    page.wait_for_function("() => document.querySelector('#data-report')?.innerText.includes('<img src=x')")
    harmless(page)
    name = EVIL.replace("/", "") + ".jsonl"
    row = {EVIL: EVIL, "instruction": EVIL, "output": EVIL, "system": EVIL}
    rows = "".join(json.dumps({**row, "output": f"{EVIL} {count}"}) + "\n" for count in range(30)).encode()
    page.locator("#data-file").set_input_files([{"name": name[-100:], "mimeType": "text/plain", "buffer": rows}])
    page.wait_for_function("() => document.querySelector('#data-report')?.innerText.includes('30 rows')")
    page.locator("#model-name input").fill("starter")
    page.locator("#model-name input").press("Enter")
    page.wait_for_function("() => document.querySelector('#data-preview')?.innerText.includes('<img src=x')")
    shows_it_as_text(page)


FILES = """async (places) => {
  const told = [];
  for (const [index, event] of gradio_config.dependencies.entries()) {
    if (event.inputs.length !== 1 || told.length > 11) continue;
    for (const path of places) {
      const file = { path, url: path, orig_name: "x", meta: { _type: "gradio.FileData" } };
      for (const data of [[file], [[file]], [JSON.stringify(file)]]) {
        const body = JSON.stringify({ data, fn_index: event.id ?? index, session_hash: "abc", event_data: null });
        const headers = { "content-type": "application/json" };
        told.push((await fetch("/gradio_api/queue/join", { method: "POST", headers, body })).status);
      }
    }
  }
  return told;
}"""


def test_a_page_of_ours_cannot_have_gradio_fetch_files(house: House) -> None:
    """Gradio takes what looks like a file of its own to its cache before a handler sees it."""
    page = house.page("/")
    page.wait_for_function("() => window.gradio_config?.dependencies?.length > 5")
    address = f"http://127.0.0.1:{house.evil_port}/x.jsonl"
    asked = page.evaluate(FILES, ["/etc/passwd", "/proc/self/environ", str(house.locations.studio), address])
    assert len(asked) > 11
    page.wait_for_timeout(700)
    assert [path for path in (house.locations.home / "gradio").rglob("*") if path.is_file()] == []


# ── another site ─────────────────────────────────────────────────────────────────────────────────────────────────────

TRIES = (Path(__file__).parent / "evil_page.js").read_text("utf-8").split("*/\n", 1)[1].rstrip(";\n")


@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("evil.example", marks=pytest.mark.slow)])
def test_nothing_that_another_sites_page_tries_is_read_or_runs(house: House, host: str) -> None:
    """127.0.0.1 at another port is of the same site for cookies, which then come along; a name is not."""
    before = state(house.locations)
    page = house.context.new_page()
    answers: list[tuple[int, str, str]] = []
    page.on("response", lambda answer: answer.url.startswith(house.studio.root)
            and answers.append((answer.status, answer.request.method, answer.url)))  # fmt: skip
    asked: list[str] = []
    page.on("request", lambda request: request.url.startswith(house.studio.root) and asked.append(request.url))
    page.goto(f"http://{host}:{house.evil_port}/")
    assert page.evaluate(TRIES, [house.studio.root, RUN]) == []
    assert len(asked) > 120
    assert len(answers) > 20, "those of refused fetches are not told"
    assert [answer for answer in answers if answer[0] not in (401, 403)] == []
    assert state(house.locations) == before
    page.close()


def test_a_window_that_another_site_opens_is_out_of_its_reach(house: House) -> None:
    page = house.context.new_page()
    page.goto(f"http://127.0.0.1:{house.evil_port}/")
    with page.expect_popup() as opened:
        page.evaluate("root => { window.other = window.open(root + '/watch') }", house.studio.root)
    opened.value.wait_for_load_state()
    reach = (
        "() => { try { return window.other.closed ? 'gone' : window.other.document.title } catch { return 'denied' } }"
    )
    assert page.evaluate(reach) in ("gone", "denied")
    assert "another site" in opened.value.inner_text("body"), "even with our cookie, which a same-site page brings"
    assert opened.value.evaluate("() => window.opener") is None
    page.close()


def test_a_name_that_was_made_to_point_here_is_not_ours(house: House) -> None:
    page = house.context.new_page()
    port = house.studio.root.rsplit(":", 1)[1]
    for host in ("evil.example", "localhost.", "[::ffff:127.0.0.1]"):
        try:
            answer = page.goto(f"http://{host}:{port}/watch")
        except Exception:  # the browser itself refuses, or nobody listens there
            continue
        assert answer.status == 403, host
    page.close()


def state(locations: Locations) -> dict[str, bytes]:
    """Every small file of the root, but for what a listing keeps for itself."""
    found = (
        path
        for path in locations.home.rglob("*")
        if path.is_file() and path.name not in ("summary.json", "studio.json")
    )
    return {
        str(path): path.read_bytes() for path in found if "cache" not in path.parts and path.stat().st_size < 1 << 20
    }


# ── the process ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_studio_listens_on_loopback_alone_and_shares_nothing(house: House) -> None:
    process = psutil.Process(house.studio.process.pid)
    family = [process, *process.children(recursive=True)]
    sockets = [one for member in family for one in member.net_connections("inet")]
    assert {one.laddr.ip for one in sockets if one.status == psutil.CONN_LISTEN} == {"127.0.0.1"}
    assert {one.raddr.ip for one in sockets if one.raddr} <= {"127.0.0.1"}
    assert not [member for member in family if "frpc" in member.name()]


def test_revoke_ends_the_session_of_an_open_page(house: House) -> None:
    page = house.page("/history")
    page.locator("summary").first.wait_for()
    assert command_line(["doctor", "--revoke", "--home", str(house.locations.home)]) == 0
    page.wait_for_function("() => document.body.innerText.includes('not let in')")
    page.reload()
    assert "no key yet" in page.title()
    enter(page, house.studio)
