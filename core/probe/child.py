"""``python -m core.probe.child``: one rehearsal on the card, told over a pipe, and gone.

The card's lock is taken without waiting and held while this process lives. It leaves at once when its pipe closes,
also while a model is loading, and within a second or two when a run waits for the card.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from core.contract.errors import MachineError, StudioError
from core.contract.estimate import Probe
from core.machine.hardware import read_machine
from core.machine.imports import importing
from core.machine.locations import Locations
from core.probe.messages import Said, Setup, Stage
from core.runs.control.gpu_lease import LineWriter, end_with_the_pipe, leave_when_wanted, take_card

__all__ = ["main"]

SHORT, LONG = 2, 40
"""Short steps (the second is timed), and long ones at most."""


def main() -> int:
    """Reads Setup, says stages, then the result or a fault."""
    mouth = LineWriter.take_stdout()
    try:
        setup = Setup.model_validate_json(sys.stdin.readline())
        end_with_the_pipe()
        locations = Locations.find(setup.home)
        card = take_card(locations, setup.lock_name, "the probe")
        leave_when_wanted(locations, setup.lock_name, mouth, "the probe")
        _say(mouth, "loading", "" if setup.spec.folder else "random weights of the same shape: it is not here yet")
        found = _rehearsed(setup, mouth)
    except StudioError as error:
        mouth.say(error.told())
        return 1
    mouth.say(found.model_dump())
    card.release()
    return 0


def _say(mouth: LineWriter, stage: Stage, text: str = "") -> None:
    mouth.say(Said(stage=stage, text=text).model_dump())


def _rehearsed(setup: Setup, mouth: LineWriter) -> Probe:
    with importing():
        device = _device()
        from core.probe.rehearse import rehearse

    def stepping(stage: Any, text: str) -> None:
        if stage == "stepping":
            _say(mouth, stage, text)

    seen = rehearse(setup.config, setup.spec, setup.lengths, device, (SHORT, LONG, setup.seconds), stepping)
    return Probe(
        peak_bytes=seen.peak_allocated_bytes,
        reserved_bytes=seen.peak_reserved_bytes,
        context_bytes=seen.context_bytes or 0,
        seconds_per_step=seen.seconds_a_step,
        tokens_per_second=seen.tokens_per_second,
        spilled=seen.spilled,
        steps=len(seen.laps),
        random_weights=not setup.spec.folder,
    )


def _device() -> Any:
    """The first card, or the CPU of a machine without one.

    Raises:
        MachineError: there is a card, and PyTorch cannot use it.
    """
    import torch

    if torch.cuda.is_available():
        torch.cuda.set_device(0)
        return torch.device("cuda", 0)
    machine = read_machine()
    if machine.gpu:
        raise MachineError(
            "gpu.unusable",
            f"Expected PyTorch {torch.__version__} to use the {machine.gpu.name}, found that it cannot "
            f"(driver {machine.gpu.driver or 'unknown'}).",
            "Update the NVIDIA driver, or choose a PyTorch for it: python3 launcher.py --torch cu126 (or cpu).",
        )
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or machine.cpu_count))
    return torch.device("cpu")


if __name__ == "__main__":
    sys.exit(main())
