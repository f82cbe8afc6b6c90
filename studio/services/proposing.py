"""The proposal for a draft: made where its rows, goal, method or model are others than before, or a setting that others
follow was set by hand; and only then, so that nothing moves because the card's free memory did.

Where another model is proposed, all else is proposed by the lengths that are known, and again when the rows have been
counted for it. Both are one change.
"""

from collections.abc import Iterator
from dataclasses import replace

from core.contract.catalogue import ModelSpec
from core.contract.config import RunConfig
from core.contract.data import DataReport
from core.contract.estimate import Proposed
from core.estimate import Given, propose
from core.estimate.fit import chosen
from core.estimate.propose import LEADING, SETTINGS, goal_taken, goals_key, propose_model
from core.estimate.reasons import BECAUSE
from core.models.catalog import starter
from core.runs.folder.run_yaml import flat
from studio.services.session import Session, sample_of
from studio.services.standing import CAUSES, PENDING, Change, Standing, with_value

_MODEL = "model.name"
_MINOR = ("train.warmup_steps",)


def proposed_for(session: Session, given: Given) -> Session | None:
    """The session under the proposal for what is ``given``; None where it stands already."""
    standing, cause = session.standing or Standing(), _cause_of(given, given.config, session.own)
    differs = [part for part in CAUSES if standing.cause.get(part) != cause[part]]
    if not differs:
        return None
    same_rows = set(differs) <= {"model", "own"}
    here = standing.here and same_rows
    following = same_rows and standing.cause.get("model") == PENDING
    before = _undone(session.config, standing) if following else session.config
    why = standing.why if following else differs[0]
    config, model = session.config, next((row for row in standing.rows if row.key == _MODEL), None)
    if here or not same_rows:
        spec, model = _model(session, given, here)
        if _MODEL not in session.own and model.value != config.model.name:
            config = with_value(config, _MODEL, model.value)
            given = replace(given, config=config, spec=spec)
    another = config.model != session.config.model
    config, settings = propose(given, session.own)
    cause = _cause_of(given, config, session.own)  # a goal that cannot learn from these rows has given way
    if another:
        cause["model"] = PENDING
    rows = (*([model] if model else []), *settings)
    changed = tuple(_changes(before, config))
    if why == "own" and all(one.key in _MINOR for one in changed):  # what was said before matters more
        changed, why = standing.changed, standing.why
    return replace(session, config=config, standing=Standing(
        cause=cause, rows=rows, changed=changed, why=why, stamp=standing.stamp + 1, here=here
    ))  # fmt: skip


def without_hub(session: Session) -> Session | None:
    """The session on the built-in model, where the hub did not give what was proposed; what is on this machine is
    proposed next. None where a person chose the model, or that was done."""
    standing = session.standing
    if standing is None or standing.here or _MODEL in session.own or session.config.model.source != "hub":
        return None
    before = _undone(session.config, standing)
    config = with_value(session.config, _MODEL, "starter")
    changed = tuple(_changes(before, config))
    cause = {**standing.cause, "model": PENDING}
    return replace(session, config=config, standing=standing.model_copy(
        update={"cause": cause, "here": True, "changed": changed, "stamp": standing.stamp + 1}
    ))  # fmt: skip


def without_goal(session: Session, report: DataReport) -> Session | None:
    """The session without its goal, where that cannot learn from these rows; None where it can, or a person chose the
    method."""
    config = session.config
    if not config.preset or "method" in session.own or config.learning.takes(report.layout):
        return None
    config = goal_taken(config.model_copy(update={"preset": ""}), own=session.own)
    standing = session.standing or Standing()
    return replace(session, config=config, standing=standing.model_copy(update={"stamp": standing.stamp + 1}))


def _cause_of(given: Given, config: RunConfig, own: frozenset[str]) -> dict[str, str]:
    """By its parts; of what a person set only that which other settings follow."""
    data, model = config.data, config.model
    reading = (data.layout, sorted(data.columns.items()), data.train_on, data.template, data.system_prompt)
    file = (data.path, given.report.sha256, given.report.rows)
    parts = (file, reading, config.preset, config.method, (model.source, model.name), _leading(config, own))
    return dict(zip(CAUSES, map(str, parts), strict=True))


def _leading(config: RunConfig, own: frozenset[str]) -> list[tuple[str, object]]:
    keys = (*LEADING, *(row.key for row in SETTINGS))
    return [(key, chosen(config, key)) for key in keys if key in own]


def as_it_is(session: Session) -> Session:
    """The session, where nothing is to follow what was set together or taken back."""
    if session.standing is None:
        return session
    model = session.config.model
    now = {"model": str((model.source, model.name)), "own": str(_leading(session.config, session.own))}
    cause = session.standing.cause | now
    return replace(session, standing=session.standing.model_copy(update={"cause": cause}))


def _model(session: Session, given: Given, here: bool) -> tuple[ModelSpec, Proposed]:
    """The model for these rows; a sample is for trying out, with the one that is quick anywhere."""
    if sample_of(session.config.data.path):
        quick = starter()
        return quick, Proposed(key=_MODEL, value=quick.name, because=BECAUSE["model.sample"])
    return propose_model(given, session.own, here)


def _undone(config: RunConfig, standing: Standing) -> RunConfig:
    for change in standing.changed:
        config = with_value(config, change.key, change.old)
    return config


def _changes(before: RunConfig, after: RunConfig) -> Iterator[Change]:
    """What differs, of all that a proposal may change."""
    old, new = flat(before), flat(after)
    for key in new:
        if (key == _MODEL or goals_key(key)) and old[key] != new[key]:
            yield Change(key=key, old=old[key], new=new[key])
