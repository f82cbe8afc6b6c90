"""What "auto" comes to in a run: known from an earlier trial on this card, or tried now, before the first step.

A run takes the same arithmetic to its end: what was taken is a ``Correction`` in its log, which every later attempt
finds there.
"""

import time
from contextlib import suppress
from typing import Any

import torch

from core.contract.catalogue import ModelSpec
from core.contract.config import RunConfig
from core.contract.data import DataFacts
from core.contract.estimate import Resolved
from core.contract.events import Correction
from core.contract.weight_forms import DEFAULT_ARITHMETIC
from core.estimate.eight_bits import AUTO, KEY, choose, layer_of
from core.estimate.fit import pass_tokens, usual_tokens
from core.estimate.inputs.cards import shared_by
from core.estimate.inputs.rows import rows_of
from core.machine.hardware import Machine
from core.machine.locations import Locations
from core.model.layers.trial import milliseconds_a_layer
from core.models.suited import put
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.notes import read_asked
from core.runs.record.job_record import RunRecord
from core.runs.record.learned import append, speeds
from core.train.channel.reporter import EventReporter


def reopened(config: RunConfig, folder: JobFolder, record: RunRecord, resumed: bool) -> RunConfig:
    """The config with "auto" where a person left the choice to us and no attempt has made it yet: run.yaml has what the
    plan foresaw."""
    asked = read_asked(folder)
    wanted = config.train.arithmetic == AUTO or (asked is not None and asked.config.train.arithmetic == AUTO)
    made = resumed or any(correction.key == KEY for correction in record.corrections)
    return put(config, KEY, AUTO) if wanted and not made else config


def settled(
    config: RunConfig, spec: ModelSpec, on: tuple[Machine, DataFacts | None], loaded: tuple[Any, torch.dtype],
    folder: JobFolder, reporter: EventReporter,
) -> tuple[RunConfig, list[Resolved]]:  # fmt: skip
    """The config with an arithmetic in place of "auto", and the line that says why; any other config as it is.

    Args:
        on: the machine, its card with the oldest compute capability of all cards that compute; and the data.
        loaded: the model with its adapter, not swapped yet, and the dtype of its activations.
        folder: of the run; what differs from its run.yaml, or was tried now, is written into its log.
    """
    if config.train.arithmetic != AUTO:
        return config, []
    locations, (machine, facts) = Locations.find(), on
    rows = shared_by(rows_of(config, facts), machine)
    tokens, learned, taken = usual_tokens(config, rows, pass_tokens(config, rows)), speeds(locations), ""
    chosen = choose(config, spec, machine, learned, tokens)
    if chosen.untried:
        reporter.stage("preparing", "which arithmetic is the fastest on this card")
        begun = time.monotonic()
        found = milliseconds_a_layer(loaded[0], tokens, (DEFAULT_ARITHMETIC, *chosen.untried), loaded[1])
        seconds = time.monotonic() - begun
        trial = layer_of(config, spec, machine, tokens)
        trial = trial.model_copy(update={"milliseconds": found, "seconds": seconds, "at": time.time()})
        if found:
            with suppress(OSError):
                append(locations, trial)
        chosen = choose(config, spec, machine, learned.plus(trial), tokens)
        taken = f"after a trial of {seconds:.1f} s: "
    line = Resolved(key=KEY, value=chosen.name, reason=f"{taken}{chosen.reason}")
    if taken or line.value != folder.config().train.arithmetic:
        reporter.say(Correction(key=KEY, old=AUTO, new=line.value, reason=line.reason))
    return put(config, KEY, chosen.name), [line]
