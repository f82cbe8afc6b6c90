"""What is wished of a data file alone: all settings as they are proposed for its rows and this machine."""

from collections.abc import Sequence
from pathlib import Path

from core.contract.catalogue import ModelSpec
from core.contract.config import RunConfig
from core.contract.errors import HubError
from core.contract.estimate import Resolved
from core.data.service.data_service import DataService
from core.estimate import Given, propose
from core.estimate.inputs.cards import deciding
from core.estimate.propose import propose_model
from core.machine.hardware import read_machine
from core.machine.locations import Locations
from core.models.catalog import find_model
from core.runs.control.prepare import tokenizer_folder
from core.runs.folder.run_yaml import wish_of
from core.runs.record.learned import speeds

RUN_YAMLS = (".yaml", ".yml")
"""Endings of a run's configuration; every other file holds data."""


def proposed_wish(
    path: Path, settings: Sequence[str], locations: Locations, service: DataService
) -> tuple[RunConfig, tuple[Resolved, ...]]:
    """The config for a data file, and a line for each value that was proposed; what ``settings`` say stays.

    Raises:
        ConfigError: as ``read_wish``.
        Fault: the file or the model cannot be used.
    """
    wish, own = wish_of(path, settings)
    spec = find_model(wish.model.source, wish.model.name, wish.model.revision)
    given, lines = _given(wish, spec, locations, service), []
    if "model.name" not in own:
        given, line = _with_model(given, own, locations, service)
        lines.append(line)
    config, said = propose(given, own)
    told = (one for one in said if one.value and one.key not in {*own, "method"})  # of the method ``prepare`` says it
    lines += [Resolved(key=one.key, value=str(one.value), reason=one.because) for one in told]
    return config, tuple(lines)


def _with_model(
    given: Given, own: frozenset[str], locations: Locations, service: DataService
) -> tuple[Given, Resolved]:
    """The same with the model that is proposed; where the hub does not give it, with one of this machine."""
    for here in (False, True):
        spec, said = propose_model(given, own, here)
        model = given.config.model.model_copy(update={"source": spec.source, "name": spec.name, "revision": ""})
        config = given.config.model_copy(update={"model": model})
        line = Resolved(key=said.key, value=str(said.value), reason=said.because)
        if spec.name == given.spec.name:
            break
        try:
            return _given(config, spec, locations, service), line
        except HubError:
            if here:
                raise
    return given, line


def _given(config: RunConfig, spec: ModelSpec, locations: Locations, service: DataService) -> Given:
    path, method = Path(config.data.path), None if config.method == "auto" else config.method
    report = service.report(path, config.data, method)
    trained, limit = config.with_method(report.method).trained_method, config.train.max_length
    facts = service.facts(path, config.data, tokenizer_folder(spec), limit, method=trained)
    machine = deciding(read_machine(locations.home).choosing(config.train.cards))
    return Given(config, machine, speeds(locations), facts=facts, spec=spec, report=report)
