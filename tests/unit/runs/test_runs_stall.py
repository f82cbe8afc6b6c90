"""The judge of silence, with clocks that are turned by hand."""

from __future__ import annotations

import pytest

from core.contract.events import Acknowledged, Checkpoint, Hello, Stage, Starting, Step
from core.runs.process.clock import AwakeClock
from core.runs.record.stall import Heartbeat, Work

IDLE, BUSY = 0.005, 0.5
"""CPU seconds a second: of a process that only listens, and of one that computes."""


def trained(beat: Heartbeat, now: float, *seconds: float) -> float:
    for number, taken in enumerate(seconds, 1):
        now += taken
        beat.hear(Step(step=number, seconds=taken), now)
    return now


def looked(beat: Heartbeat, since: float, until: float, cores: float = IDLE, moved: float = 0.0) -> None:
    """A look every ten seconds at a process that computes and reads so much a second."""
    now = since
    while now <= until:
        beat.see(Work(cores * now, moved * now), now)
        now += 10


@pytest.mark.parametrize(
    ("seconds", "limit"), [([1.0, 2.0, 3.0], 300.0), ([29.0, 40.0, 50.0], 400.0), ([1, 1, 900], 300.0)]
)
def test_a_step_may_take_ten_times_the_median_and_five_minutes_at_least(seconds: list[float], limit: float) -> None:
    beat = Heartbeat(0.0, earlier=seconds)
    beat.hear(Stage(stage="training"), 0.0)
    assert (beat.limit().silent, beat.limit().at_work) == (limit, 0.0)


def test_a_step_that_does_not_end_is_a_stall_however_busy_the_process() -> None:
    beat = Heartbeat(0.0)
    now = trained(beat, 0.0, 2.0, 2.0, 2.0)
    looked(beat, now, now + 299, cores=BUSY, moved=1e6)
    assert beat.stalled(now + 299) is None
    stall = beat.stalled(now + 300)
    assert stall.words == "Step 4 did not end (a step takes 2 s) for 5 min, longer than the 5 min it may"


def test_the_limit_follows_the_run_and_what_it_did_before() -> None:
    slow = Heartbeat(0.0, earlier=[60.0] * 5)
    slow.hear(Stage(stage="training"), 0.0)
    assert slow.stalled(599.0) is None
    assert slow.stalled(600.0) is not None
    now = trained(slow, 0.0, *[1.0] * 60)  # only the last fifty count
    assert slow.stalled(now + 299) is None
    assert slow.stalled(now + 300) is not None


def test_before_a_step_was_measured_a_pass_may_take_as_long_as_a_first_step() -> None:
    """The held-out rows are measured once before step 1, on a slow machine with a pass of many minutes."""
    beat = Heartbeat(0.0)
    beat.hear(Stage(stage="evaluating", text="Held-out rows", total=8), 0.0)
    looked(beat, 0.0, 1800.0, cores=BUSY)
    assert beat.stalled(1800.0) is None
    looked(beat, 1800.0, 3600.0, cores=BUSY)
    assert beat.stalled(3600.0) is not None
    now = trained(beat, 3600.0, 1.0)
    beat.hear(Stage(stage="evaluating", text="Held-out rows", total=8), now)
    assert beat.stalled(now + 300) is not None


def test_an_ear_that_lives_on_is_no_heartbeat() -> None:
    beat = Heartbeat(0.0)
    now = trained(beat, 0.0, 1.0)
    for later in range(0, 300, 10):
        beat.hear(Acknowledged(command_id=str(later), command="save"), now + later)
        beat.hear(Stage(stage="training"), now + later)  # the same progress again
    assert beat.stalled(now + 300) is not None


def test_progress_within_a_stage_is_a_heartbeat_and_its_repetition_is_not() -> None:
    beat = Heartbeat(0.0)
    for minute in range(60):
        beat.hear(Stage(stage="downloading", text="Tiny", done=minute, total=60, unit="bytes"), minute * 60.0)
        assert beat.stalled(minute * 60.0 + 59) is None
    for minute in range(60, 70):
        beat.hear(Stage(stage="downloading", text="Tiny", done=59, total=60, unit="bytes"), minute * 60.0)
    stall = beat.stalled(59 * 60.0 + 600)
    assert "'downloading' stood still at 59 of 60 bytes for 10 min" in stall.words


@pytest.mark.parametrize("stage", ["preparing", "loading", "first_step", "saving", "merging", "verifying"])
def test_a_silent_stage_lives_while_it_computes_or_reads_but_not_for_ever(stage: str) -> None:
    for rate in ({"cores": BUSY}, {"moved": 2e6}):
        beat = Heartbeat(0.0)
        beat.hear(Stage(stage=stage), 0.0)  # type: ignore[arg-type]
        looked(beat, 0.0, 3590.0, **rate)
        assert beat.stalled(3590.0) is None
        looked(beat, 3600.0, 3600.0, **rate)
        assert beat.stalled(3600.0) is not None
    beat = Heartbeat(0.0)
    beat.hear(Stage(stage=stage), 0.0)  # type: ignore[arg-type]
    limit = beat.limit().silent
    looked(beat, 0.0, limit)
    assert beat.stalled(limit - 1) is None
    assert beat.stalled(limit) is not None


def test_who_waits_for_a_disk_reads() -> None:
    beat = Heartbeat(0.0)
    beat.hear(Stage(stage="loading"), 0.0)
    for now in range(0, 1000, 10):
        beat.see(Work(on_disk=True), float(now))
    assert beat.stalled(1000.0) is None


def test_waiting_for_something_outside_is_no_stall() -> None:
    beat = Heartbeat(0.0)
    trained(beat, 0.0, 1.0)
    beat.hear(Stage(stage="waiting", text="3.2 GB of disk are missing"), 1.0)
    assert beat.stalled(1e6) is None
    beat.hear(Stage(stage="saving"), 1e6)
    assert beat.stalled(1e6 + 299) is None
    assert beat.stalled(1e6 + 300) is not None


def test_a_worker_that_never_speaks_is_a_stall_and_one_that_does_something_lives() -> None:
    beat = Heartbeat(0.0)
    beat.hear(Starting(), 200.0)  # the supervisor's own word
    stall = beat.stalled(300.0)
    assert stall.words.startswith("The worker said nothing after its start for 5 min")
    beat.hear(Hello(), 299.0)
    assert beat.stalled(300.0) is None
    trained(beat, 300.0, 1.0)
    beat.hear(Checkpoint(step=1), 500.0)
    assert beat.stalled(799.0) is None


class Clocks:
    def __init__(self) -> None:
        self.mono = self.boot = 1000.0
        self.clock = AwakeClock(lambda: self.mono, lambda: self.boot)

    def pass_by(self, mono: float, boot: float | None = None) -> float:
        self.mono += mono
        self.boot += mono if boot is None else boot
        return self.clock.tick()


def test_awake_time_is_made_of_ticks() -> None:
    clocks = Clocks()
    for _ in range(100):
        clocks.pass_by(0.1)
    assert clocks.clock.awake == pytest.approx(10.0)
    assert clocks.clock.away == 0.0


def test_a_nights_sleep_is_not_counted_however_it_looks() -> None:
    clocks = Clocks()
    assert clocks.pass_by(0.1, 8 * 3600.0) == pytest.approx(0.1)  # Linux slept: only the boot clock went on
    assert clocks.clock.away == pytest.approx(8 * 3600.0)
    assert clocks.pass_by(8 * 3600.0) == pytest.approx(5.1)  # the host held us, or somebody sent SIGSTOP
    assert clocks.clock.away == pytest.approx(8 * 3600.0)
    assert clocks.pass_by(-8 * 3600.0) == pytest.approx(5.1)  # a clock that goes back
    assert clocks.clock.away == 0.0
    assert clocks.pass_by(0.1) == pytest.approx(5.2)


def test_what_does_not_count_is_left_out() -> None:
    clocks = Clocks()
    clocks.mono += 3.0
    assert clocks.clock.tick(counts=False) == 0.0
    assert clocks.pass_by(1.0) == pytest.approx(1.0)
