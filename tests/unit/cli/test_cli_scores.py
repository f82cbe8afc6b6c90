"""Heads of scores on the command line: what they need, and what is refused before anything is loaded."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from encoder_cases import encoder_folder

from core.contract.config import RunConfig
from core.contract.errors import Fault
from core.contract.tasks import Outputs
from core.data.service.data_service import DataService
from core.machine.locations import ASSETS, Locations
from core.models.outputs import write_outputs
from core.runs.control.prepare import Prepared, prepare
from core.runs.control.store import RunStore
from studio.services.session import reopened
from tests.bare_run import bare_run
from tests.unit.cli.test_cli import run

Prepare = Callable[..., Prepared]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return encoder_folder(tmp_path_factory.mktemp("models") / "bert", "bert")


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    """Texts with two labels, in turn."""
    rows = [{"text": f"a {kind} film {'good ' * (number % 30)}", "label": kind}
            for number in range(30) for kind in ("good", "bad")]  # fmt: skip
    path = tmp_path / "films.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Locations:
    return Locations.find(tmp_path_factory.mktemp("home")).make()


@pytest.fixture
def prepared(home: Locations, service: DataService) -> Prepare:
    def ready(data: Path, **asked: Any) -> Prepared:
        return prepare(RunConfig.model_validate({"data": {"path": str(data)}, **asked}), home, service)

    return ready


@pytest.mark.usefixtures("served")
def test_an_encoders_folder_and_a_file_with_labels_are_enough(
    locations: Locations, bert: Path, labelled: Path, tmp_path: Path
) -> None:
    (tmp_path / "run.yaml").write_text(f"model: {{source: folder, name: {bert}}}\ndata: {{path: {labelled}}}\n")
    code, out, err = run("estimate", str(tmp_path / "run.yaml"), "--json")
    assert (code, err) == (0, "")
    said = json.loads(out)
    resolved = {line["key"]: (line["value"], line["reason"]) for line in said["resolved"]}
    assert {key: resolved[key][0] for key in ("method", "train.learns", "model.quantization", "train.max_length")} == {
        "method": "classify", "train.learns": "everything", "model.quantization": "none", "train.max_length": "40",
    }  # fmt: skip
    assert resolved["train.max_length"][1] == "the longest row that bert reads"
    words = " ".join(part["how"] for part in said["estimate"]["terms"])
    assert "one row of scores a text" in words
    assert "vocabulary" not in words
    assert said["estimate"]["total_steps"] > 0
    assert said["config"]["train"]["max_length"] == 40


@pytest.mark.parametrize(
    "left",
    [{"lora": {"init_lora_weights": "loftq", "use_dora": True, "bias": "lora_only", "target_modules": ["fc_in"]}},
     *(pytest.param({"train": one}, marks=pytest.mark.slow) for one in ({"optim": "muon"}, {"learns": "everything"}))],
)  # fmt: skip
@pytest.mark.usefixtures("served")
def test_an_encoder_is_refused_for_nothing_that_only_an_adapter_uses(
    bert: Path, labelled: Path, tmp_path: Path, left: dict[str, Any]
) -> None:
    """Settings that a draft may still hold, or that are right for a model that is trained whole."""
    said = {"model": {"source": "folder", "name": str(bert)}, "data": {"path": str(labelled)}, **left}
    (tmp_path / "run.yaml").write_text(json.dumps(said))
    code, out, err = run("estimate", str(tmp_path / "run.yaml"), "--json")
    assert (code, err) == (0, "")
    config = json.loads(out)["config"]
    assert (config["train"]["learns"], config["model"]["quantization"]) == ("everything", "none")


def test_what_followed_from_an_encoder_is_open_again_for_another_model(
    prepared: Prepare, bert: Path, labelled: Path
) -> None:
    chosen = {"train": {"max_length": 1024}, "model": {"source": "folder", "name": str(bert)}}
    made = prepared(labelled, **chosen)
    assert (made.config.train.learns, made.config.train.max_length) == ("everything", 40)
    again = reopened(made.config, made.asked)
    assert (again.method, again.train.learns, again.model.quantization, again.train.max_length) == (
        "auto", "adapter", "nf4", 1024,
    )  # fmt: skip
    assert (again.model.name, again.data.sha256) == (str(bert), made.config.data.sha256)
    assert reopened(made.config, made.asked, ["train.max_length"]).train.max_length == 40, "corrected while it ran"


SMALL = {"model": {"source": "starter", "name": "starter"}}


def test_what_cannot_be_is_one_line_before_anything_is_loaded(prepared: Prepare, bert: Path, labelled: Path) -> None:
    encoder = {"model": {"source": "folder", "name": str(bert)}}
    instruction = ASSETS / "samples" / "instruction.jsonl"
    pairs = ASSETS / "samples" / "preference.jsonl"
    cases: list[tuple[Path, dict[str, Any], str, str]] = [
        (instruction, encoder, "model.writes_none", "SFT"),
        (pairs, encoder, "model.writes_none", "DPO"),
        (pairs, {**encoder, "method": "reward"}, "model.writes_none", "Reward model"),
        (labelled, {**encoder, "method": "sft"}, "model.writes_none", "SFT"),
        (labelled, {**encoder, "train": {"learns": "adapter_embeddings"}}, "model.encoder_whole", "everything"),
        (labelled, {**SMALL, "train": {"learns": "adapter_embeddings"}}, "config.faults", "or the method SFT"),
        (labelled, {**SMALL, "train": {"problem_type": "regression"}}, "data.labels", "regression"),
    ]
    for data, asked, code, said in cases:
        with pytest.raises(Fault) as caught:
            prepared(data, **{"method": "auto", **asked})
        assert caught.value.code == code, caught.value
        assert said in f"{caught.value} {caught.value.problems}"
        assert "\n" not in caught.value.message


def test_stars_of_which_one_was_given_once_are_learned_as_a_number(prepared: Prepare, tmp_path: Path) -> None:
    stars = [1, 2, 3, 4] * 15 + [5]
    path = tmp_path / "stars.jsonl"
    path.write_text("\n".join(json.dumps({"text": f"film {row}", "label": label}) for row, label in enumerate(stars)))
    with pytest.raises(Fault, match="1 seen once: '5'"):
        prepared(path, **SMALL, method="auto")
    assert prepared(path, **SMALL, method="auto", train={"problem_type": "regression"}).facts.labels == 1


def test_several_labels_are_not_one(prepared: Prepare, tmp_path: Path) -> None:
    rows = [{"text": f"film {number}", "labels": ["good", "long"] if number % 2 else ["bad"]} for number in range(40)]
    path = tmp_path / "several.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(Fault, match="single_label_classification"):
        prepared(path, **SMALL, train={"problem_type": "single_label_classification"})


def test_a_run_goes_on_from_one_with_the_same_head_only(home: Locations, prepared: Prepare, labelled: Path) -> None:
    """Another task, and other labels; the same ones may."""
    store = RunStore(home)
    head = store_run(store, "classify", ("bad", "good"))
    assert prepared(labelled, **SMALL, resume_from=head).config.method == "classify"
    other = store_run(store, "classify", ("cat", "dog"))
    words = store_run(store, "sft")
    reward = store_run(store, "reward", ("reward",))
    for name, code, said in (
        (other, "run.resume_from", "cat, dog"), (words, "run.resume_from", "language model"),
        (reward, "run.resume_from", "reward"),
    ):  # fmt: skip
        with pytest.raises(Fault) as caught:
            prepared(labelled, **SMALL, resume_from=name)
        assert (caught.value.code, said in str(caught.value)) == (code, True), caught.value
        assert name != words or "choose the method SFT" in caught.value.hint
    with pytest.raises(Fault, match="sequence classification"):
        prepared(ASSETS / "samples" / "instruction.jsonl", **SMALL, resume_from=head)


def store_run(store: RunStore, method: str, names: tuple[str, ...] = ()) -> str:
    """A run of this method that left a checkpoint; its name."""
    asked = {"name": f"{method}-{len(names)}-{''.join(names)}", "method": method, "data": {"path": "/a.jsonl"}}
    folder = bare_run(store, RunConfig.model_validate(asked))
    adapter = folder.checkpoints / "step-000010" / "adapter"
    adapter.mkdir(parents=True)
    (adapter / "adapter_config.json").write_text("{}")
    (adapter.parent / "MANIFEST.json").write_text("{}")
    if names:
        problem = "regression" if len(names) == 1 else "single_label_classification"
        write_outputs(Outputs(names, problem), adapter)  # type: ignore[arg-type]
    return folder.path.name
