"""What the window promises of time and memory, in a real browser against a studio of its own.

Times are the best of a few tries, each begun when the machine has a core to spare: it is our part that is promised, and
not that of who else computes. Eight hours of ticking are 28,800 looks at a growing run, one after another without the
pauses between; by default an eighth of an hour is ticked, and ``-m slow`` ticks all of it.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from driving import RunningStudio, free_port, running_studio
from made_runs import append, past, step, write_run
from visiting import WINDOW, enter, let_in
from waiting import until, wait_for_calm

from core.contract.events import Evaluation
from core.machine.locations import Locations
from core.machine.locks import FileLock
from core.runs.folder.job_folder import JobFolder
from core.runs.log.events_log import last_event

pytestmark = pytest.mark.browser

RUN = "2026-11-20_2243_long_k3f9"
STEPS = 20_000
PAINTED_MS, USABLE_MS, ANSWERED_MS = 400, 1_500, 300
COLD_SECONDS = 3.0
OPENED_MS = 1_000
SHARE = 0.05
AT_REST = SHARE / 2
TICKS, SOME_TICKS = 28_800, 200
MB = 1 << 20


@pytest.fixture(scope="module")
def house(studio: RunningStudio) -> Iterator[tuple[RunningStudio, JobFolder]]:
    locations = Locations(studio.home).make()
    run = write_run(locations, past(STEPS, total=4 * STEPS), RUN, "Long")
    hold = FileLock(run.supervisor_lock)
    assert hold.acquire()
    yield studio, run
    shutil.rmtree(run.path)
    hold.release()


@pytest.fixture
def page(browser: Any, house: tuple[RunningStudio, JobFolder]) -> Iterator[Any]:
    context = browser.new_context(viewport=WINDOW)
    context.set_default_timeout(60_000)
    context.add_init_script(USABLE)
    opened = context.new_page()
    enter(opened, house[0])
    opened.wait_for_function("() => window.usableAt")
    opened.locator("#data-preview .rows").wait_for()
    yield opened
    context.close()


USABLE = """(() => {
    const look = () => {
        const start = document.querySelector('gradio-app #start');
        const seen = start?.checkVisibility({ visibilityProperty: true });
        if (seen && !start.disabled) window.usableAt = performance.now();
        else requestAnimationFrame(look);
    };
    look();
})()"""
"""Notes when Start can be pressed, in milliseconds since the page was asked for."""


def best_of(tries: int, measure: Callable[[], tuple[float, ...]], limits: tuple[float, ...], what: str) -> None:
    """Each measure's best of some tries is within its limit; no further try is made once all are."""
    seen: list[tuple[float, ...]] = []
    best: list[float] = []
    while len(seen) < tries and (not seen or any(one > limit for one, limit in zip(best, limits, strict=True))):
        wait_for_calm()
        seen.append(measure())
        best = [min(column) for column in zip(*seen, strict=True)]
    print(f"{what}: {[round(one, 3) for one in best]}, tries {seen}")
    assert all(one <= limit for one, limit in zip(best, limits, strict=True)), (what, limits, seen)


@pytest.mark.alone
def test_it_is_painted_within_400_ms_can_be_started_within_1500_and_answers_an_edit_within_300(page: Any) -> None:
    def reloaded() -> tuple[float, ...]:
        page.reload()
        page.wait_for_function("() => window.usableAt")
        painted = page.evaluate("() => performance.getEntriesByName('first-contentful-paint')[0].startTime")
        usable = page.evaluate("() => window.usableAt")
        page.locator("#data-preview .rows").wait_for()
        return painted, usable

    best_of(4, reloaded, (PAINTED_MS, USABLE_MS), "ms until it is painted, until Start can be pressed")
    values = iter("12456")
    best_of(5, lambda: (page.evaluate(EDIT, next(values)),), (ANSWERED_MS,), "ms until an edit is answered")


@pytest.mark.slow
@pytest.mark.alone
def test_a_studio_that_was_not_running_can_start_a_run_within_3_seconds(browser: Any, tmp_path: Path) -> None:
    """From the start of its process, for a browser that has its files from an earlier start, and with the sources
    compiled by that: where a test's surroundings forbid to keep what was compiled, a person's do not."""
    port = free_port()
    with browser.new_context(viewport=WINDOW) as context:  # closed where it fails, too: its page looks at every frame
        context.add_init_script(USABLE)
        page = context.new_page()

        def begun() -> tuple[float, ...]:
            at = time.perf_counter()
            with running_studio(tmp_path, port, PYTHONDONTWRITEBYTECODE="") as studio:
                page.goto(studio.address)
                page.wait_for_function("() => window.usableAt", timeout=60_000)
                seconds = time.perf_counter() - at
                page.goto("about:blank")
            return (seconds,)

        begun()
        best_of(6, begun, (COLD_SECONDS,), "s from nothing until Start can be pressed")


EDIT = """(value) => new Promise((done) => {
    const field = document.querySelector('#train-num_train_epochs input');
    const before = document.querySelector('#summary').textContent;
    const watch = new MutationObserver(() => {
        const now = document.querySelector('#summary').textContent;
        if (now === before || !now.trim()) return;
        watch.disconnect();
        done(performance.now() - began);
    });
    watch.observe(document.querySelector('.new-run-summary'), { subtree: true, childList: true, characterData: true });
    Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set.call(field, value);
    const began = performance.now();
    field.dispatchEvent(new Event('input', { bubbles: true }));
})"""


@pytest.mark.alone
def test_twenty_thousand_steps_open_within_a_second(browser: Any, house: tuple[RunningStudio, JobFolder]) -> None:
    """From the click to the drawn curve, cold: the server has never read the run. The best of three visits, each begun
    when the machine has a core to spare, since it is our part that is promised and not that of who else computes."""
    locations, context = Locations(house[0].home), let_in(browser, house[0])
    page, numbers = context.new_page(), iter(range(3))
    page.goto(f"{house[0].root}/watch?run={RUN}")  # the browser has our scripts by now
    page.wait_for_function(DRAWN)
    page.add_init_script(DRAWN_AT)
    cold = past(STEPS, finished=True)

    def opened() -> tuple[float, ...]:
        run_id = f"2026-11-16_224{next(numbers)}_cold_k3f9"
        write_run(locations, cold, run_id, "Cold")
        wait_for_calm(30)
        page.goto(f"{house[0].root}/watch?run={run_id}")
        page.wait_for_function("() => window.drawnAt")
        return (page.evaluate("() => window.drawnAt"),)

    best_of(3, opened, (OPENED_MS,), "ms from the click to the drawn curve")
    context.close()


DRAWN_AT = """(() => {
    const look = () => {
        const line = document.querySelector('.chart-loss .line')?.getAttribute('d') ?? '';
        if (line.length > 1000) window.drawnAt = performance.now();
        else requestAnimationFrame(look);
    };
    look();
})()"""
"""Notes when the curve stands, in milliseconds since the visit began."""


@pytest.fixture
def watching(browser: Any, house: tuple[RunningStudio, JobFolder]) -> Iterator[Any]:
    """The watch page as a visitor has it: without a clock of ours in it, which would cost more than the page."""
    context = let_in(browser, house[0], 120)
    page = context.new_page()
    page.goto(f"{house[0].root}/watch?run={RUN}")
    page.wait_for_function(DRAWN)
    until(lambda: page.evaluate(BUILT))
    yield page
    context.close()


BUILT = "async () => (await (await fetch('/studio/standing')).json()).built"
DRAWN = "() => document.querySelector('.chart-loss .line')?.getAttribute('d')?.length > 1000"


@contextmanager
def growing(run: JobFolder, seconds: float) -> Iterator[None]:
    """A step every so many seconds, for as long as it lasts."""
    ended = threading.Event()

    def grow() -> None:
        last = last_event(run.events)
        number = last.step if last else STEPS
        while not ended.wait(seconds):
            number += 1
            append(run, [step(number, time.time())])

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        yield
    finally:  # where a test fails, too: the thread would keep its process for ever
        ended.set()
        thread.join()


@pytest.mark.slow
@pytest.mark.alone
def test_looking_at_a_long_run_costs_a_twentieth_of_a_core(
    watching: Any, house: tuple[RunningStudio, JobFolder]
) -> None:
    """The page's main thread; all that its processes do, painting too; and the studio with what it does at rest. What
    is done at a look and between two is counted in the default run, by the next test."""
    server = psutil.Process(house[0].process.pid)
    watching.wait_for_timeout(1_500)  # what it starts with has been done
    nobody = without_a_look(watching, server)
    session = watching.context.new_cdp_session(watching)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    whole = watching.context.browser.new_browser_cdp_session()

    def now() -> tuple[float, ...]:
        return time.monotonic(), metric(session, "TaskDuration"), painted(whole), busy(server)

    def shares() -> tuple[float, ...]:
        before = now()
        watching.wait_for_timeout(3_000)
        took, *spent = (late - early for late, early in zip(now(), before, strict=True))
        return tuple(part / took for part in spent)

    with growing(house[1], 0.5):
        watching.wait_for_timeout(1_000)
        best_of(3, shares, (SHARE, SHARE, SHARE), "of a core: the page's thread, its processes, the server")
    assert nobody <= AT_REST


def test_between_two_looks_nothing_moves_and_a_look_writes_only_what_changed(
    watching: Any, house: tuple[RunningStudio, JobFolder]
) -> None:
    """What a share of a core cannot say on a busy machine: what is done at all, while a step comes at every look."""
    session = watching.context.new_cdp_session(watching)
    session.send("Performance.enable")
    with growing(house[1], 0.5):
        watching.wait_for_timeout(2_500)
        assert watching.evaluate("() => document.getAnimations().length") == 0
        before = metric(session, "LayoutCount")
        looks, drawn, beats = watching.evaluate(WRITTEN)
        laid_out = metric(session, "LayoutCount") - before
    assert looks >= 3
    assert beats >= looks - 1, "the dot beats with each look"
    assert drawn <= looks / 2, "a step moves a night's picture by a fiftieth of a pixel"
    assert laid_out <= 2 * looks + 2


WRITTEN = """async () => {
    const count = { looks: 0, drawn: 0, beats: 0 };
    const step = document.querySelector('[data-f="step"]');
    const counted = (node, name, options) => {
        const watch = new MutationObserver(() => (count[name] += 1));
        watch.observe(node, options);
        return watch;
    };
    const all = [
        counted(step, 'looks', { childList: true, characterData: true, subtree: true }),
        counted(document.querySelector('.chart-loss .line'), 'drawn', { attributes: true }),
        counted(document.querySelector('.live'), 'beats', { attributes: true }),
    ];
    await new Promise((done) => setTimeout(done, 6500));
    for (const one of all) one.disconnect();
    return [count.looks, count.drawn, count.beats];
}"""


def test_what_can_be_seen_of_a_long_run_is_painted_at_once(
    watching: Any, house: tuple[RunningStudio, JobFolder]
) -> None:
    last = last_event(house[1].events)
    assert last is not None
    append(house[1], [step(last.step + 1, time.time()).model_copy(update={"grad_norm": 77.0})])
    beyond = "document.querySelector('.chart-grad_norm .edge').getAttribute('d')"
    watching.wait_for_function(f"() => {beyond}")  # one spike does not press the night's line into the ground
    measured = "() => document.querySelectorAll('.chart-loss .dots')[1].getAttribute('d')"
    before = watching.evaluate(measured)
    append(house[1], [Evaluation(at=time.time(), attempt=1, step=last.step + 1, loss=1.1, rows=5)])
    watching.wait_for_function(f"(was) => ({measured})() !== was", arg=before)


def without_a_look(page: Any, server: psutil.Process) -> float:
    """The server's share of a core while nobody looks."""
    address = page.url
    page.goto("about:blank")
    page.wait_for_timeout(1_000)
    share = 1.0
    for _ in range(2):
        if share > AT_REST:
            began, before = time.monotonic(), busy(server)
            page.wait_for_timeout(3_000)
            share = min(share, (busy(server) - before) / (time.monotonic() - began))
    page.goto(address)
    page.wait_for_function(DRAWN)
    return share


def metric(session: Any, name: str) -> float:
    """One of the page's own measures; ``TaskDuration`` is in seconds of a processor, where asked for by thread."""
    return float(next(one["value"] for one in session.send("Performance.getMetrics")["metrics"] if one["name"] == name))


def painted(browser: Any) -> float:
    """Seconds of a processor that the browser's page processes have had, with all their threads."""
    processes = browser.send("SystemInfo.getProcessInfo")["processInfo"]
    return float(sum(one["cpuTime"] for one in processes if one["type"] == "renderer"))


def busy(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


TICK = """async (count) => {
    const plain = window.plainFetch ??= window.fetch;
    let told;
    window.fetch = async (...given) => {
        const answer = await plain(...given);
        setTimeout(told, 0);
        return answer;
    };
    for (let tick = 0; tick < count; tick += 1) {
        const heard = new Promise((done) => (told = done));
        const again = setInterval(() => document.dispatchEvent(new Event('visibilitychange')), 1);
        await heard;
        clearInterval(again);
    }
    window.fetch = plain;
}"""
"""Looks again as soon as the last look was answered."""


def ticked(page: Any, house: tuple[RunningStudio, JobFolder], ticks: int, step_seconds: float) -> None:
    """Memory of page and server after half of the ticks, and after all: level, but for the run's own growth."""
    server = psutil.Process(house[0].process.pid)
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.enable")
    seen = []
    with growing(house[1], step_seconds):
        for _ in range(4):
            page.evaluate(TICK, ticks // 4)
            session.send("HeapProfiler.collectGarbage")
            heap = page.evaluate("() => performance.memory.usedJSHeapSize")
            nodes = page.evaluate("() => document.getElementsByTagName('*').length")
            seen.append((heap / MB, nodes, server.memory_info().rss / MB))
    print(f"{ticks} ticks: page MB, nodes, server MB", seen)
    (heap, nodes, memory), (last_heap, last_nodes, last_memory) = seen[1], seen[-1]
    assert last_heap - heap <= 2, seen
    assert last_nodes == nodes, seen
    assert last_memory - memory <= 12, seen


@pytest.mark.slow
def test_some_minutes_of_ticking_leave_memory_level(watching: Any, house: tuple[RunningStudio, JobFolder]) -> None:
    ticked(watching, house, SOME_TICKS, 0.02)


@pytest.mark.slow
def test_eight_hours_of_ticking_leave_memory_level(watching: Any, house: tuple[RunningStudio, JobFolder]) -> None:
    """They pass in about half an hour, with a step each second of it: of the eight hours, one in sixteen seconds."""
    ticked(watching, house, TICKS, 1.0)
