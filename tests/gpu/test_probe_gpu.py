"""The probe on a card: real steps of a made-up model, figures beside the estimate's, and the card free afterwards."""

from __future__ import annotations

import pytest

from core.contract.config import RunConfig
from core.contract.data import DataFacts
from core.contract.errors import Fault
from core.estimate import estimate, resolve
from core.machine.cards import held_by
from core.machine.hardware import read_machine
from core.machine.locations import Locations
from core.model.loading.random_weights import find_shape
from core.proof.probe.client import probe
from core.runs.record.learned import speeds

pytestmark = pytest.mark.gpu
LENGTHS = tuple(range(200, 1000, 8))


def facts() -> DataFacts:
    mean = sum(LENGTHS) / len(LENGTHS)
    longest = max(LENGTHS)
    return DataFacts(
        rows=100, lengths=LENGTHS, trained=LENGTHS, max_length=1024, longest=longest, mean=mean, split_groups=()
    )


def config_of(**train: object) -> RunConfig:
    model = {"source": "hub", "name": "Qwen/Qwen3-0.6B"}
    return RunConfig.model_validate({"model": model, "train": {"max_length": 1024, **train}})


def test_a_probe_on_a_card_is_near_the_estimate_and_corrects_it(locations: Locations) -> None:
    spec = find_shape("qwen3-0.6b").model_copy(update={"folder": "", "cached": False})
    machine, stages = read_machine(), list[str]()
    config, _ = resolve(config_of(), spec, facts(), machine)
    plain = estimate(config, spec, facts(), machine)
    found = probe(config, spec, facts(), locations, stages.append)
    assert stages == ["starting", "loading", "stepping"]
    assert found.random_weights
    assert not found.spilled
    assert found.peak_bytes <= found.reserved_bytes
    assert plain.allocated_bytes == pytest.approx(found.peak_bytes, rel=0.08, abs=300 * 2**20)
    assert found.steps >= 10
    assert held_by(locations, machine.cards) is None
    again = estimate(config, spec, facts(), machine, speeds(locations))
    assert again.tokens_per_second is not None
    low, high = again.tokens_per_second
    assert low < found.tokens_per_second < high


def test_a_card_that_is_too_small_is_one_line(locations: Locations) -> None:
    spec = find_shape("codellama-34b").model_copy(update={"folder": "", "cached": False})
    config = config_of(max_length=262144, tokens_per_pass=262144, per_device_train_batch_size=1, checkpointing="none")
    with pytest.raises(Fault) as caught:
        probe(config, spec, None, locations)
    assert caught.value.code in ("probe.memory", "model.memory")
    assert "\n" not in str(caught.value)
