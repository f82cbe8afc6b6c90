"""The run summary: does it fit, how long, how many steps, what is missing; and the words on Start."""

from core.contract.errors import HubError, ModelError
from core.contract.estimate import Estimate
from core.models.catalog import presets
from studio.figures.run_figures import bytes_words, duration, passes_words
from studio.pages.new_run.because import because_view
from studio.pages.new_run.data import roles
from studio.pages.new_run.data.chips import problem_of
from studio.pages.new_run.form import KNOBS
from studio.pages.new_run.plan import (
    advice_view,
    budget_view,
    cards_view,
    fit_view,
    gb_or_mb,
    parts_view,
    room_view,
    spare_words,
)
from studio.pages.new_run.view import View
from studio.pages.new_run.words import say
from studio.services.session import sample_of
from studio.shell.markup import Markup, fault, icon, join, push, tag

_MATTERS = 0.5
"""From this share of what is free a need has a line of its own."""
_UNTRAINED = frozenset({"data.nothing", "data.nothing_trained"})


def summary_view(view: View) -> Markup:
    """The summary above Start: the need, what would make it fit, the time, what is missing."""
    parts: list[object] = [tag("h2", say("summary.title"))]
    if view.form_fault is not None:
        parts.append(fault(view.form_fault))
        if view.form_fault.key == "card.missing":
            parts.append(push(say("cards.first"), "change", {"train.cards": ""}))
    sentence = _sentence(view)
    if view.figures is not None:
        budget = budget_view(view.figures, view.machine, says_fits=not sentence)
        parts += [budget, fit_view(view.fit), _facts(view, view.figures)]
    elif view.form_fault is None:
        words = say("summary.waiting") if view.waiting else say("summary.nothing")
        parts.append(tag("p", words, class_="quiet awaited" if view.waiting else "quiet"))
    missing = problems(view)[1:]  # Start itself says the first
    if missing:
        parts.append(tag("ul", *(tag("li", icon("warning"), tag("span", line)) for line in missing), class_="missing"))
    if view.figures is not None and view.facts is not None:
        parts += [tag("p", note, class_="hint") for note in view.figures.notes]
    elif view.figures is not None and view.waiting and view.measurable:
        parts.append(tag("p", say("summary.waiting"), class_="hint awaited", role="status"))
    return join(*parts, sentence)


def more_view(view: View) -> Markup:
    """Below Start, folded where it is long: the parts of the memory, what the room would allow, advice."""
    if view.figures is None:
        return Markup()
    sample = bool(sample_of(view.config.data.path))  # no warnings about our own samples
    advice = advice_view(view.advice, folded=sample)
    reasons = because_view(view)
    return join(
        cards_view(view), reasons, _ends(view, view.figures), parts_view(view.figures), room_view(view.room), advice
    )


def _ends(view: View, figures: Estimate) -> Markup | None:
    """Says that fewer steps will run than the epochs need, with the button for all of them. It follows Start, to keep
    Start few Tab stops away. Goals for samples say it themselves."""
    train = view.config.train
    for_samples = any(recipe.for_samples for recipe in presets() if recipe.key == view.config.preset)
    if not train.max_steps or not figures.steps_per_epoch or (for_samples and sample_of(view.config.data.path)):
        return None
    epochs = figures.total_steps / figures.steps_per_epoch
    if epochs > train.num_train_epochs - 0.05:
        return None
    words = say("train.ends", steps=f"{figures.total_steps:,}", passes=passes_words(epochs),
                limit=KNOBS["train.max_steps"].label, asked=f"{train.num_train_epochs:g}")  # fmt: skip
    every_one = push(say("train.ends.not"), "change", {"train.max_steps": 0})
    return tag("p", icon("info"), tag("span", words), every_one, class_="origin")


def _sentence(view: View) -> Markup | None:
    """The whole run in one sentence, above Start: rows, epochs, length, time, and whether it fits."""
    figures, report = view.figures, view.report
    if figures is None or report is None or view.facts is None or problems(view):
        return None
    parts = [
        say(f"sentence.{report.layout}", rows=f"{report.usable:,}"),
        say("sentence.epochs" if (epochs := _epochs(view, figures)) != "1" else "sentence.epoch", epochs=epochs),
        say("sentence.length", tokens=f"{min(view.config.train.max_length, view.facts.longest):,}"),
        *([time_words(figures)] if figures.seconds else []),
        *([say("sentence.download", size=bytes_words(size))] if (size := figures.download_bytes) else []),
    ]
    fits = spare_words(figures)
    picture = icon("check") if fits else None
    return tag("p", picture, tag("span", ", ".join(parts) + (f". {fits}" if fits else ".")), class_="run-sentence")


def _epochs(view: View, figures: Estimate) -> str:
    train = view.config.train
    if train.max_steps and figures.total_steps and figures.steps_per_epoch:
        return passes_words(figures.total_steps / figures.steps_per_epoch)
    return f"{train.num_train_epochs:g}"


def _facts(view: View, figures: Estimate) -> Markup:
    epochs = _epochs(view, figures)
    length = say("summary.steps_of", steps=f"{figures.total_steps:,}", rows=f"{view.config.rows_per_step:,}")
    counted = "summary.labels" if view.trained.learning.labelled else "summary.tokens"
    rows = [
        *([(say("summary.gives"), gives)] if (gives := _gives(view)) else []),
        (say("summary.time.estimated" if figures.seconds else "summary.time"), time_words(figures)),
        (say("summary.steps"), length if figures.total_steps else "–"),
        (say("summary.passes"), epochs),
        (say(counted), f"{figures.trained_tokens_per_epoch:,}" if figures.trained_tokens_per_epoch else "–"),
        *([(say("summary.energy"), _energy(view, figures.energy_kwh))] if figures.energy_kwh else []),
        *_elsewhere(view, figures),
    ]
    drawn = (tag("div", tag("dt", name), tag("dd", words)) for name, words in rows)
    basis = tag("p", say("summary.basis", basis=figures.time_basis), class_="hint") if figures.seconds else None
    return join(tag("dl", *drawn, class_="figures"), basis)


def _energy(view: View, bounds: tuple[float, float]) -> str:
    """The energy, and what it costs where the settings have a price."""
    words, price = _range(bounds, "kWh"), view.settings.kwh_price
    cost = _range((bounds[0] * price, bounds[1] * price), view.settings.currency) if price else ""
    return ", ".join(filter(None, (words, cost)))


def _gives(view: View) -> str:
    """What the model gives in place of a text; empty where it writes, or where there is nothing to tell apart."""
    learning, labels = view.trained.learning, view.report.labels if view.report else None
    if not learning.labelled or labels is None:
        return say("summary.gives.score") if learning.task.scores else ""
    if labels.distinct < 2:
        return ""
    return say(f"summary.gives.{problem_of(labels, view.trained)}", count=f"{labels.distinct:,}")


def _elsewhere(view: View, figures: Estimate) -> list[tuple[str, str]]:
    """Disk, and the machine's own memory where the run needs much of it."""
    rows = []
    if figures.streamed_layers and view.spec:
        of = {"count": figures.streamed_layers, "layers": view.spec.shape.num_hidden_layers}
        size = gb_or_mb(figures.host_weights_bytes)
        key = "summary.streamed.of.cards" if figures.cards > 1 else "summary.streamed.of"
        rows.append((say("summary.streamed"), say(key, **of, size=size)))
    if figures.tile_tokens:
        rows.append((say("summary.tiles"), say("summary.tiles.of", tokens=f"{figures.tile_tokens:,}")))
    free = view.machine.ram_free_bytes
    if view.machine.gpu and (figures.pinned_bytes or figures.host_bytes > _MATTERS * free):
        rows.append((say("summary.host"), say("summary.of", peak=gb_or_mb(figures.host_bytes), free=gb_or_mb(free))))
    disk, room = figures.disk_bytes, figures.disk_free_bytes
    near = room is not None and disk > _MATTERS * room
    words = bytes_words(disk)
    rows.append((say("summary.disk"), say("summary.of", peak=words, free=bytes_words(room or 0)) if near else words))
    return rows


def _range(bounds: tuple[float, float], unit: str) -> str:
    low, high = (_short(bound) for bound in bounds)
    return f"{low} {unit}" if low == high else f"{say('summary.range', low=low, high=high)} {unit}"


def _short(value: float) -> str:
    """Two decimals for small values, none for large ones, "<" for nearly 0."""
    if 0 < value < 0.01:
        return "<0.01"
    return f"{value:.2f}" if value < 10 else f"{value:,.0f}"


def time_words(figures: Estimate) -> str:
    """The time as a range, or a dash where this device is unknown."""
    if figures.seconds is None:
        return "–"
    low, high = (duration(second) for second in figures.seconds)
    time = say("summary.about", time=low) if low == high else say("summary.range", low=low, high=high)
    if figures.cards == 1 or figures.device == "cpu":
        return time
    return say("cards.on.both" if figures.cards == 2 else "cards.on", time=time, count=figures.cards)


def problems(view: View) -> list[str]:
    """What prevents Start, a line each."""
    missing = []
    if not view.config.data.path:
        missing.append(say("missing.data"))
    elif asked := roles.question(view):
        missing.append(asked)
    elif view.data_fault is not None:
        # A model's fault with a file: its tokenizer cannot be had, or not be loaded.
        lacks = "usable_model" if isinstance(view.data_fault, ModelError | HubError) else "readable"
        missing.append(say("missing.trained" if view.data_fault.code in _UNTRAINED else f"missing.{lacks}"))
    elif view.report is not None and not view.report.usable:
        missing.append(say("missing.rows"))
    elif view.lacks_rows:
        missing.append(say("missing.pairs"))
    elif view.report is not None and not view.report.complete:
        missing.append(say("missing.checked"))
    elif view.facts is not None and not sum(view.facts.trained):
        missing.append(say("missing.trained"))
    if not view.config.model.name:
        missing.append(say("missing.model"))
    elif view.model_fault is not None:
        missing.append(say("missing.usable_model"))
    return missing


def start_words(view: View) -> tuple[str, bool]:
    """The Start button's label, and whether it can be pressed."""
    if view.form_fault is not None:
        return say("start.mend"), False
    if missing := problems(view):
        return missing[0], False
    if view.unsettled:
        return say("start.settling"), False
    if view.figures is not None and view.figures.seconds is not None:
        time = duration(sum(view.figures.seconds) / 2)
        return say("start.queue.about" if view.card_taken else "start.about", time=time), True
    return say("start.queue" if view.card_taken else "start.now"), True
