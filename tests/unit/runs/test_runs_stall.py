"""The judge of silence, with clocks that are turned by hand."""

import pytest

from core.contract.events import Acknowledged, Checkpoint, Hello, Stage, Starting, Step
from core.runs.record.stall import Heartbeat, Work
from core.runs.supervise.watch import AwakeClock

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


def stalls_at(beat: Heartbeat, now: float) -> bool:
    """Whether it is called a stall at this moment and not the second before."""
    return beat.stalled(now - 1) is None and beat.stalled(now) is not None


@pytest.mark.parametrize(
    ("seconds", "limit"), [([1.0, 2.0, 3.0], 300.0), ([29.0, 40.0, 50.0], 400.0), ([1, 1, 900], 300.0)]
)
def test_a_step_may_take_ten_times_the_median_and_five_minutes_at_least(seconds: list[float], limit: float) -> None:
    beat = Heartbeat(0.0, earlier=seconds)
    beat.hear(Stage(stage="training"), 0.0)
    assert stalls_at(beat, limit)
    now = trained(beat, 0.0, *[2.0] * 60)  # only the last fifty count
    looked(beat, now, now + 300, cores=BUSY, moved=1e6)  # a card that hangs keeps a core busy
    assert stalls_at(beat, now + 300)
    words = beat.stalled(now + 300).words
    assert words == "Step 61 did not end (a step takes 2 s) for 5 min, longer than the 5 min it may"


def test_before_a_step_was_measured_a_pass_may_take_as_long_as_a_first_step() -> None:
    """The held-out rows are measured once before step 1, on a slow machine with a pass of many minutes."""
    beat = Heartbeat(0.0)
    beat.hear(Stage(stage="evaluating", text="Held-out rows", total=8), 0.0)
    looked(beat, 0.0, 3600.0, cores=BUSY)
    assert stalls_at(beat, 3600.0)
    now = trained(beat, 3600.0, 1.0)
    beat.hear(Stage(stage="evaluating", text="Held-out rows", total=8), now)
    assert stalls_at(beat, now + 300)


def test_progress_within_a_stage_is_a_heartbeat_and_its_repetition_or_an_ear_that_lives_on_is_not() -> None:
    beat = Heartbeat(0.0)
    for minute in range(60):
        beat.hear(Stage(stage="downloading", text="Tiny", done=minute, total=60, unit="bytes"), minute * 60.0)
        assert beat.stalled(minute * 60.0 + 59) is None
    for minute in range(60, 70):
        beat.hear(Stage(stage="downloading", text="Tiny", done=59, total=60, unit="bytes"), minute * 60.0)
        beat.hear(Acknowledged(command_id=str(minute), command="save"), minute * 60.0)
    assert stalls_at(beat, 59 * 60.0 + 600)
    assert "'downloading' stood still at 59 of 60 bytes for 10 min" in beat.stalled(59 * 60.0 + 600).words


@pytest.mark.parametrize("stage", ["preparing", "loading", "first_step", "saving", "merging", "verifying"])
@pytest.mark.parametrize("rate", [{"cores": BUSY}, {"moved": 2e6}, {}], ids=["computes", "reads", "listens"])
def test_a_silent_stage_lives_while_it_computes_or_reads_but_not_for_ever(stage: str, rate: dict[str, float]) -> None:
    beat = Heartbeat(0.0)
    beat.hear(Stage(stage=stage), 0.0)  # type: ignore[arg-type]
    limit = 3600.0 if rate else beat.limit().silent
    looked(beat, 0.0, limit, **rate)
    assert stalls_at(beat, limit)


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
    assert stalls_at(beat, 1e6 + 300)


def test_a_worker_that_never_speaks_is_a_stall_and_one_that_does_something_lives() -> None:
    beat = Heartbeat(0.0)
    beat.hear(Starting(), 200.0)  # the supervisor's own word
    assert beat.stalled(300.0).words.startswith("The worker said nothing after its start for 5 min")
    beat.hear(Hello(), 299.0)
    assert beat.stalled(300.0) is None
    trained(beat, 300.0, 1.0)
    beat.hear(Checkpoint(step=1), 500.0)
    assert stalls_at(beat, 800.0)


class Clocks:
    def __init__(self) -> None:
        self.mono = self.boot = 1000.0
        self.clock = AwakeClock(lambda: self.mono, lambda: self.boot)

    def pass_by(self, mono: float, boot: float | None = None, counts: bool = True) -> float:
        self.mono += mono
        self.boot += mono if boot is None else boot
        return self.clock.tick(counts)


def test_a_nights_sleep_is_not_counted_however_it_looks() -> None:
    clocks = Clocks()
    assert clocks.pass_by(0.1, 8 * 3600.0) == pytest.approx(0.1)  # Linux slept: only the boot clock went on
    assert clocks.clock.away == pytest.approx(8 * 3600.0)
    assert clocks.pass_by(8 * 3600.0) == pytest.approx(5.1)  # the host held us, or somebody sent SIGSTOP
    assert clocks.clock.away == pytest.approx(8 * 3600.0)
    assert clocks.pass_by(-8 * 3600.0) == pytest.approx(5.1)  # a clock that goes back
    assert clocks.clock.away == 0.0
    assert clocks.pass_by(3.0, counts=False) == pytest.approx(5.1)
    assert [clocks.pass_by(0.1) for _ in range(100)][-1] == pytest.approx(15.1)
