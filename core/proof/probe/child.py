"""``python -m core.proof.probe.child``: one probe on the card, steered over a pipe.

It takes the card's lock without waiting and holds it to its end. It exits at once when its pipe closes, also while a
model is loading, and within two seconds when a run waits for the card.
"""

import sys
from typing import Any

from core.contract.errors import Fault
from core.contract.estimate import Probe
from core.machine.children.serve import LineWriter
from core.machine.imports import importing
from core.machine.locations import Locations
from core.proof.probe.messages import Said, Setup, Stage
from core.runs.control.gpu_lease import end_with_the_pipe, leave_when_wanted, take_card

SHORT, LONG = 2, 40
"""Short steps (the second is timed), and at most so many long ones."""


def main() -> int:
    """Reads Setup; writes stages, then the result or a fault."""
    out = LineWriter.take_stdout()
    try:
        setup = Setup.model_validate_json(sys.stdin.readline())
        end_with_the_pipe()
        locations = Locations.find(setup.home)
        card = take_card(locations, setup.cards, "the probe")
        leave_when_wanted(locations, setup.cards, out, "the probe")
        _say(out, "loading", "" if setup.spec.folder else "random weights of the same shape: it is not here yet")
        result = _measured(setup, out)
    except Fault as error:
        out.say(error.told())
        return 1
    out.say(result.model_dump())
    card.release()
    return 0


def _say(out: LineWriter, stage: Stage, text: str = "") -> None:
    out.say(Said(stage=stage, text=text).model_dump())


def _measured(setup: Setup, out: LineWriter) -> Probe:
    with importing():
        from core.proof.probe.measure import Steps, measure_steps
        from core.train.run import device_for

    def stepping(stage: Any, text: str) -> None:
        if stage == "stepping":
            _say(out, stage, text)

    device, steps = device_for(setup.config.train.seed), Steps(SHORT, LONG, setup.seconds)
    seen = measure_steps(setup.config, setup.spec, setup.lengths, device, steps, stepping)
    return Probe(
        peak_bytes=seen.peak_allocated_bytes,
        reserved_bytes=seen.peak_reserved_bytes,
        context_bytes=seen.context_bytes or 0,
        seconds_per_step=seen.seconds_a_step,
        tokens_per_second=seen.tokens_per_second,
        spilled=seen.spilled,
        steps=len(seen.short) + len(seen.long),
        random_weights=not setup.spec.folder,
    )


if __name__ == "__main__":
    sys.exit(main())
