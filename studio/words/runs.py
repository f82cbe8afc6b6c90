"""Words of a run that several pages say: its states and stages, what to do next, its charts, questions to it."""

from __future__ import annotations

from core.runs.record.job_record import State
from core.runs.record.words import STATE_WORDS

__all__ = ["RUNS", "STATES"]

_TONES: dict[State, str] = {
    "queued": "wait",
    "starting": "live",
    "training": "live",
    "paused": "wait",
    "finished": "good",
    "stopped": "quiet",
    "failed": "bad",
    "lost": "bad",
    "unreadable": "bad",
}
STATES: dict[str, tuple[str, str]] = {state: (STATE_WORDS[state], tone) for state, tone in _TONES.items()}
"""State to its word and tone. The words are the command line's too; tab title, page and history read them here."""

_RUN = {
    "run.of": "of",
    "run.damaged.hint": "Checkpoints are checked by themselves: resume, try and take home use those.",
    "run.starter": "the built-in model",
    "run.title": "{data} on {model}, {when}",
    "run.away": "The studio does not answer. The run goes on without it; trying again.",
    "run.none": "There is no run yet.",
    "run.none.do": "Start one",
    "run.unsaved": "No run has saved a checkpoint yet.",
    "run.unsaved.do": "Watch the run",
    "run.choose": "Run",
    "run.copy": "Copy",
    "run.copied": "Copied",
    "run.not_copied": "Select and copy it by hand",
    "state.queued.sentence": "Waiting for its turn.",
    "state.queued.why": "Waiting: {reason}",
    "state.starting.sentence": "Getting ready to train.",
    "state.training.sentence": "You may close this page; the run goes on without it.",
    "state.waiting.sentence": "The run waits and goes on by itself. It waits for: {what}",
    "state.paused.sentence": "Paused after step {step}. The card is free for other work.",
    "state.stopped.sentence": "Stopped after step {step}. The checkpoint of step {kept} is kept.",
    "state.stopped.nothing": "Stopped before anything was saved.",
    "state.finished.sentence": "Done in {took}.",
    "state.failed.sentence": "It ended after step {step}. The checkpoint of step {kept} is kept.",
    "state.failed.nothing": "It ended before anything was saved.",
    "state.failed.unknown": "The run ended by a fault that it could not name.",
    "state.lost.sentence": "It was cut off after step {step}. The checkpoint of step {kept} is kept.",
    "state.lost.nothing": "It was cut off before anything was saved.",
    "state.unreadable.sentence": "Its folder cannot be read.",
    "state.lost.cause": "The run's process is gone and left no last word: a restart, a power cut or a killed process.",
    "state.lost.cure": "Resume goes on from the last checkpoint, or from the start where there is none.",
    "stage.preparing": "Preparing",
    "stage.downloading": "Downloading",
    "stage.loading": "Loading the model",
    "stage.first_step": "First step",
    "stage.step": "Step {step} of {total}",
    "stage.training": "Training",
    "stage.evaluating": "Measuring held-out loss",
    "stage.saving": "Saving",
    "stage.merging": "Merging",
    "stage.verifying": "Checking the result",
    "stage.waiting": "Waiting",
    "stage.since": "for {time}",
    "verdict.used": "Try and Take home use step {step}: of what was saved, its held-out loss is the lowest.",
    "speed.share": "{now}, {share} of what this card can do",
    "card.busy": "{value}\u00a0% busy",
    "card.warm": "{value}\u00a0°C",
    "card.power": "{value}\u00a0W",
}

_NEXT = {
    "history.resume": "Resume",
    "history.anyway": "Resume anyway",
    "history.mend": "Run again with {change}",
    "history.rerun": "Run again …",
    "queue.other": "Something else: {name}",
}

_CHART = {
    "chart.charts": "Charts",
    "chart.log": "log",
    "chart.step": "Step",
    "chart.table": "As a table",
    "chart.empty": "No readings yet",
    "chart.best": "best",
    "chart.keys": "Arrow keys read it, plus and minus zoom, Escape shows the whole run.",
    "chart.loss": "Loss",
    "chart.loss.train": "Training",
    "chart.loss.held_out": "Held-out",
    "chart.learning_rate": "Learning rate",
    "chart.learning_rate.now": "Rate",
    "chart.margin": "Margin (lead of the preferred answer)",
    "chart.accuracy": "Accuracy (pairs told apart rightly)",
    "chart.grad_norm": "Gradient norm",
    "chart.grad_norm.now": "Norm",
    "chart.speed": "Speed",
    "chart.speed.now": "Tokens a second",
    "chart.memory": "Memory",
    "chart.memory.run": "Run",
    "chart.memory.card": "Card",
    "chart.power_watts": "Power",
    "chart.power_watts.now": "Watts",
    "chart.temperature_celsius": "Temperature",
    "chart.temperature_celsius.now": "Card",
    "chart.forecast": "forecast",
    "chart.load": "GPU load",
    "chart.load.now": "Busy",
}

_TRY = {
    "try.checkpoint": "Checkpoint",
    "try.prompt": "Question",
    "try.send.keys": "Ctrl+Enter",
    "try.cancel": "Stop answering",
    "try.settings": "How to answer",
    "try.length": "Max tokens of an answer",
    "try.temperature": "Temperature: 0 always takes the likeliest word",
    "try.seed": "Seed",
    "try.rows": "{count} held-out rows were never trained on.",
    "try.row": "Held-out row {at} of {count} (row {row} of the file). Its right answer is shown beside the others.",
    "try.no_rows": "Expected held-out rows, found none in this run.",
    "try.waiting": "…",
    "try.nothing": "(an empty answer)",
    "try.no_answer": "(no answer)",
    "try.busy": "Another question is being answered.",
    "try.busy.hint": "Wait for it, or stop it.",
}

RUNS: dict[str, str] = {**_RUN, **_NEXT, **_CHART, **_TRY}
