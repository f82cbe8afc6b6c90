"""The list of models by fit, below the model's field, and the line with the one that is proposed.

The field and the list are a combobox: ``assets/js/model_list.js`` gives them life, and every option brings the changes
that choosing it makes. The list is written anew whenever it is opened, so that it follows every knob.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby

from core.contract.catalogue import ModelSpec
from core.machine.hardware import Machine
from studio.figures.run_figures import bytes_words
from studio.pages.new_run.asking import push
from studio.pages.new_run.model.by_fit import Placed, Proposal
from studio.pages.new_run.plan.budget import gb_or_mb
from studio.shell.markup import Markup, tag
from studio.words.text import say

__all__ = ["here_words", "list_view", "proposal_view"]


def list_view(found: Sequence[Placed], chosen: str, proposal: Proposal, machine: Machine) -> Markup:
    """Models under the headings of their groups; ``chosen`` is the field's value."""
    numbers = {id(one): number for number, one in enumerate(found)}

    def option(one: Placed) -> Markup:
        name = one.spec.name
        return _option(one, numbers[id(one)], chosen == name, proposal if proposal.spec.name == name else None)

    groups = []
    for key, members in groupby(found, key=lambda one: one.group):
        options = [option(one) for one in members]
        groups.append(_group(key if machine.gpu or key != "card" else "machine", options))
    how = tag("p", say("model.list.how"), class_="hint", id="model-how")
    counts = {f"data_{many}": say(f"model.list.{many}") for many in ("none", "one", "some")}
    said = tag("p", role="status", class_="hint", id="model-said", **counts)
    listed = tag("div", *groups, role="listbox", id="model-options", tabindex="-1", aria_label=say("model.list"))
    return tag("div", how, said, listed, class_="model-pop")


def proposal_view(proposal: Proposal, chosen: str) -> Markup:
    """The proposal in one line, with the button that takes it where it is not chosen already.

    The button is no stop of the Tab key, of which Start is to be few away: the arrow keys of the field, which this line
    describes, begin at the same proposal.
    """
    title, because = tag("strong", proposal.spec.title), say("model.propose.because")
    words = tag("span", say("model.propose"), " ", title, because, _why(proposal), id="model-proposed")
    name = proposal.spec.name
    taken = None
    if chosen != name:
        label = f"{say('model.propose.take')}: {proposal.spec.title}"
        changes = {"model.name": name, **proposal.changes}
        taken = push(say("model.propose.take"), "change", changes, tabindex="-1", aria_label=label)
    return tag("p", words, taken, class_="card-proposal model-proposal")


def here_words(spec: ModelSpec) -> str:
    """Whether it is on this machine, else how much has to come."""
    if spec.cached or spec.folder:
        return say("model.here")
    return say("model.download", size=bytes_words(spec.download_bytes))


def _why(proposal: Proposal) -> str:
    room = say("model.room.known")
    if proposal.tokens:
        room = say("model.room.tokens", tokens=f"{proposal.tokens:,}")
    if proposal.group == "offload":
        room = say("model.room.offload", room=room)
    return say(f"model.propose.{proposal.why}", goal=proposal.goal, gib=proposal.gib, room=room)


def _group(key: str, options: Sequence[Markup]) -> Markup:
    title = tag(
        "div",
        tag("b", say(f"model.group.{key}")), " ", tag("span", f"{len(options)}", class_="count"), " ",
        tag("span", say(f"model.group.{key}.about"), class_="hint"),
        id=f"model-group-{key}", class_="model-group", role="presentation",
    )  # fmt: skip
    return tag("div", title, *options, role="group", aria_labelledby=f"model-group-{key}")


def _option(one: Placed, number: int, chosen: bool, proposal: Proposal | None) -> Markup:
    spec, changes = one.spec, {**one.changes, **(proposal.changes if proposal else {})}
    marks = [tag("span", say("model.proposed"), class_="chip mark")] if proposal else []
    marks += [tag("span", say("model.tight"), class_="chip tight")] if one.tight else []
    head = tag("span", tag("strong", spec.title), *marks, tag("span", spec.about, class_="about"), class_="model-head")
    words = "fit.need" if one.group == "too_large" else "model.takes"
    need = tag("span", say(words, size=gb_or_mb(one.peak_bytes)), class_="need")
    facts = [*_facts(one), *_besides(proposal)]
    return tag(
        "div", head, " ", need, " ", tag("span", " · ".join(facts), class_="facts"),
        role="option", id=f"model-option-{number}", aria_selected="true" if chosen else "false",
        data_name=spec.name, data_title=spec.title, data_words=" ".join((spec.title, *facts)).lower(),
        data_value=json.dumps({"model.name": spec.name, **changes}), data_proposed=proposal is not None,
    )  # fmt: skip


def _besides(proposal: Proposal | None) -> list[str]:
    """What taking the proposal brings along, and what was measured of it."""
    if proposal is None:
        return []
    brings = [say("model.settings")] if set(proposal.changes) - {"model.name"} else []
    return [*brings, *([proposal.evidence] if proposal.evidence else [])]


def _facts(one: Placed) -> list[str]:
    spec = one.spec
    return [
        *((spec.name,) if spec.source != "starter" else ()),
        say("model.instruct" if spec.instruct else "model.base"),
        spec.licence or say("model.licence.unknown"),
        here_words(spec),
        *((say("model.login"),) if spec.gated and not spec.cached else ()),
        *((say("model.changes"),) if one.changes else ()),
    ]
