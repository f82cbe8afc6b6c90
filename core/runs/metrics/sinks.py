"""SINKS: where a run's metrics can be shown, a row each. The libraries are the person's own: none is a dependency, and
one is imported only where a person asks for it.

Names of metrics are those of transformers' callbacks: ``train/loss``, ``eval/loss``, ``train/learning_rate``.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from core.contract.errors import ConfigError

PROJECT = "luthier"
STEP = "train/global_step"
_DATABASE = "sqlite:///{home}/mlflow.db"
Values = dict[str, float]


class Sink(Protocol):
    """An open destination."""

    def log(self, at: float, step: int, values: Values) -> None:
        """Takes what was measured at a step; ``at``: seconds since the epoch."""

    def close(self, failed: bool) -> None:
        """Sends what waits, and says how the run ended."""


@dataclass(frozen=True)
class Shown:
    """The run that is shown: its id, its name for people, its settings, and ``folder``, which is the sink's own;
    ``kept``: what a sink keeps from one start to the next."""

    run_id: str
    name: str
    settings: dict[str, Any]
    folder: Path
    home: Path
    kept: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SinkRow:
    """One destination. ``package`` as it is imported; ``install``: what installs it; ``where``: how it is seen, with
    the sink's ``{folder}`` and the studio's ``{home}``."""

    title: str
    package: str
    install: str
    where: str
    open: Callable[[Shown], Sink]


class _TensorBoard:
    """Event files, which TensorBoard reads beside each other after a restart."""

    def __init__(self, shown: Shown) -> None:
        from tensorboard.summary import Writer

        self._writer: Any = Writer(str(shown.folder))

    def log(self, at: float, step: int, values: Values) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step, wall_time=at)
        self._writer.flush()

    def close(self, failed: bool) -> None:  # noqa: ARG002 - it knows no end
        self._writer.close()


class _Wandb:
    """A run whose id is ours, so that a restart goes on with it. Its own step only grows, and a resumed run's may not:
    the step is a metric."""

    def __init__(self, shown: Shown) -> None:
        import wandb

        project = os.environ.get("WANDB_PROJECT", PROJECT)
        self._run: Any = wandb.init(
            project=project, id=shown.run_id, name=shown.name, config=shown.settings, dir=str(shown.folder),
            resume="allow",
        )  # fmt: skip
        self._run.define_metric(STEP)
        self._run.define_metric("*", step_metric=STEP)

    def log(self, at: float, step: int, values: Values) -> None:  # noqa: ARG002 - it takes its own time
        self._run.log({**values, STEP: step})

    def close(self, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))


class _MLflow:
    """A run of the tracking server that the person's environment names, else a database in the studio's home."""

    def __init__(self, shown: Shown) -> None:
        from mlflow import MlflowClient

        place = os.environ.get("MLFLOW_TRACKING_URI") or _DATABASE.format(home=shown.home)
        self._client: Any = MlflowClient(tracking_uri=place)
        if "run" not in shown.kept:
            name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
            known = self._client.get_experiment_by_name(name)
            experiment = known.experiment_id if known else self._client.create_experiment(name)
            made = self._client.create_run(experiment, run_name=shown.name, tags={"luthier.run": shown.run_id})
            shown.kept["run"] = made.info.run_id
            for key, value in shown.settings.items():
                self._client.log_param(made.info.run_id, key, str(value)[:500])
        self._run = shown.kept["run"]
        self._client.set_terminated(self._run, "RUNNING")

    def log(self, at: float, step: int, values: Values) -> None:
        for name, value in values.items():
            self._client.log_metric(self._run, name, value, timestamp=int(at * 1000), step=step)

    def close(self, failed: bool) -> None:
        self._client.set_terminated(self._run, "FAILED" if failed else "FINISHED")


class _Trackio:
    def __init__(self, shown: Shown) -> None:
        import trackio

        self._library: Any = trackio
        options = {"config": shown.settings, "resume": "allow", "embed": False}
        trackio.init(project=PROJECT, name=shown.run_id, auto_log_gpu=False, auto_log_cpu=False, **options)

    def log(self, at: float, step: int, values: Values) -> None:  # noqa: ARG002 - it takes its own time
        self._library.log(values, step=step)

    def close(self, failed: bool) -> None:  # noqa: ARG002 - it knows no end
        self._library.finish()


SINKS: dict[str, SinkRow] = {
    "tensorboard": SinkRow(
        "TensorBoard", "tensorboard", "tensorboard", "tensorboard --logdir {home}/runs", _TensorBoard
    ),
    "wandb": SinkRow("Weights & Biases", "wandb", "wandb", "the address that it says (login: wandb login)", _Wandb),
    "mlflow": SinkRow("MLflow", "mlflow", "mlflow", f"mlflow ui --backend-store-uri {_DATABASE}", _MLflow),
    "trackio": SinkRow("Trackio", "trackio", "trackio", f"trackio show --project {PROJECT}", _Trackio),
}


def expect_installed(name: str) -> None:
    """Raises ConfigError where a sink's library is missing; ``none`` needs none."""
    row = SINKS.get(name)
    if row and find_spec(row.package) is None:
        raise ConfigError("metrics.missing", title=row.title, package=row.install)
