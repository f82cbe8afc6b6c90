"""What the planner says of a run before it begins, in the form in which it is compared with what the run took."""

from dataclasses import asdict, replace

from core.contract.catalogue import ModelSpec
from core.contract.config import RunConfig
from core.contract.data import DataFacts
from core.contract.estimate import LearnedRun, Probe
from core.estimate.duration import operations_per_token, predicted_rate
from core.estimate.inputs.rows import rows_of
from core.estimate.judge import judge
from core.machine.hardware import Machine


def predict(config: RunConfig, spec: ModelSpec, facts: DataFacts | None, machine: Machine) -> LearnedRun:
    """Arithmetic alone, whatever was learned: a later comparison is with what was counted."""
    machine = as_empty(config, machine)
    judged = judge(config, spec, rows_of(config, facts), machine, None)
    return LearnedRun(
        **asdict(judged.like),
        model=spec.name,
        predicted_bytes=judged.allocated,
        predicted_reserved_bytes=judged.reserved,
        predicted_tokens_per_second=predicted_rate(judged.usual, judged.rows, machine),
        operations=operations_per_token(judged.usual, judged.rows.seen),
    )


def as_empty(config: RunConfig, machine: Machine) -> Machine:
    """The machine, its card's free memory unknown where the config says how much of it is to be used.

    A run that asks while it holds its weights already would else be told less than it has.
    """
    if not config.train.memory_gib or machine.gpu is None:
        return machine
    return replace(machine, gpus=(replace(machine.gpu, free_bytes=None), *machine.gpus[1:]))


def probed(probe: Probe, config: RunConfig, spec: ModelSpec, facts: DataFacts | None, machine: Machine) -> LearnedRun:
    """A probe as a run of its own kind: ``learned.plus(probed(...))`` makes the next estimate follow it."""
    return predict(config, spec, facts, machine).model_copy(
        update={
            "run_id": "probe",
            "measured_bytes": probe.peak_bytes,
            "measured_reserved_bytes": probe.reserved_bytes,
            "measured_tokens_per_second": probe.tokens_per_second,
            "steps": max(probe.steps, 5),
        }
    )
