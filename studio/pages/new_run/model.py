"""Block 2, Model: which base model, how it is held in memory, the one that is proposed, and the list of models by fit.

The field takes a hub id or a folder as it is typed. Field and list are a combobox (``pages/new_run/model_list.js``);
every option brings the changes that choosing it makes. The studio writes the list anew whenever it is opened, so that
it follows every knob.
"""

import json
from collections.abc import Sequence
from itertools import groupby

import gradio as gr

from core.contract.catalogue import ModelSpec
from core.estimate.by_fit import Placed, Proposal
from core.machine.hardware import Machine
from studio.figures.run_figures import bytes_words
from studio.pages.new_run.form import Form
from studio.pages.new_run.outline import block_head
from studio.pages.new_run.plan import gb_or_mb
from studio.pages.new_run.view import View
from studio.pages.new_run.words import say
from studio.services.session import Session
from studio.shell.markup import Markup, fault, join, push, tag
from studio.shell.parts import board


def layout(form: Form, session: Session) -> None:
    """The block, filled from the session."""
    chosen = session.config.model
    with gr.Column(elem_classes="block-sheet", elem_id="block-model"):
        board(block_head("model"))
        with gr.Row(elem_classes="fields model-fields"):
            name = gr.Textbox(
                chosen.name, label=say("model.name"), placeholder=say("model.name.example"), max_lines=1,
                interactive=True, elem_id="model-name",
            )  # fmt: skip
            form.fields["model.name"] = name
            form.add("model.quantization", chosen.quantization, info=None)
        form.board("model-about")
        form.board("model-list")


# ── view ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def model_view(view: View) -> Markup:
    """The chosen model or its fault; and the proposed one, with why."""
    proposed = proposal_view(view.proposal, view.config.model.name) if view.proposal else None
    return join(_chosen(view), proposed)


def _chosen(view: View) -> Markup:
    if view.model_fault is not None:
        again = push(say("model.again"), "change", {"model.name": view.config.model.name})
        return join(fault(view.model_fault), again if view.config.model.name else None)
    if view.spec is None:
        return tag("p", say("model.looking"), class_="quiet") if view.config.model.name else Markup()
    spec = view.spec
    facts = [
        say("model.parameters", count=_count(spec.shape.parameters)),
        _kind(spec),
        spec.licence,
        say("model.context", tokens=f"{spec.shape.max_position_embeddings:,}"),
        here_words(spec),
        say("model.gated") if spec.gated and not spec.cached else "",
    ]
    line = tag("p", *(tag("span", fact, class_="chip") for fact in facts if fact), class_="chips")
    follows = (one for one in view.resolved if one.key == "train.learns")  # what learns is then chosen by the model
    hints = [spec.about, *(say("model.follows", reason=one.reason) for one in follows)]
    return join(line, *(tag("p", hint, class_="hint") for hint in hints if hint))


def _kind(spec: ModelSpec, short: bool = False) -> str:
    if spec.encoder:
        return say("model.encoder" if short else "model.encoder.means")
    return say("model.instruct" if spec.instruct else "model.base")


def _count(parameters: int) -> str:
    return f"{parameters / 1e9:.1f} B" if parameters >= 1e9 else f"{parameters / 1e6:.1f} M"


def list_view(
    placed: Sequence[Placed], chosen: str, proposal: Proposal, machine: Machine, encoders: bool = True
) -> Markup:
    """Models under the headings of their groups; ``chosen`` is the field's value; ``encoders``: whether the method has
    a use for them."""
    groups = []
    for group, members in groupby(enumerate(placed), key=lambda numbered: numbered[1].group):
        options = [_option(one, number, chosen, proposal) for number, one in members]
        key = group if machine.gpu or group != "card" else "machine"
        title = tag(
            "div",
            tag("b", say(f"model.group.{key}")), " ", tag("span", len(options), class_="count"), " ",
            tag("span", say(f"model.group.{key}.about"), class_="hint"),
            id=f"model-group-{key}", class_="model-group", role="presentation",
        )  # fmt: skip
        groups.append(tag("div", title, *options, role="group", aria_labelledby=f"model-group-{key}"))
    why = "" if encoders else f" {say('model.list.encoders')}"
    how = tag("p", say("model.list.how") + why, class_="hint", id="model-how")
    counts = {f"data_{many}": say(f"model.list.{many}") for many in ("none", "one", "some")}
    said = tag("p", role="status", class_="hint", id="model-said", **counts)
    listed = tag("div", *groups, role="listbox", id="model-options", tabindex="-1", aria_label=say("model.list"))
    return tag("div", how, said, listed, class_="model-pop")


def proposal_view(proposal: Proposal, chosen: str) -> Markup:
    """The proposal in one line, with the button that takes it where it is not chosen already.

    The button is no stop of the Tab key, of which Start is to be few away: the arrow keys of the field, which this line
    describes, begin at the same proposal.
    """
    room = say("model.room.tokens", tokens=f"{proposal.tokens:,}") if proposal.tokens else say("model.room.known")
    if proposal.group == "offload":
        room = say("model.room.offload", room=room)
    why = say(f"model.propose.{proposal.why}", goal=proposal.goal, gib=proposal.gib, room=room)
    title, because = tag("strong", proposal.spec.title), say("model.propose.because")
    words = tag("span", say("model.propose"), " ", title, because, why, id="model-proposed")
    name = proposal.spec.name
    taken = None
    if chosen != name:
        label = f"{say('model.propose.take')}: {proposal.spec.title}"
        changes = {"model.name": name, **proposal.changes}
        taken = push(say("model.propose.take"), "change", changes, tabindex="-1", aria_label=label)
    return tag("p", words, taken, class_="card-proposal model-proposal")


def here_words(spec: ModelSpec) -> str:
    """Whether it is on this machine, else the size of the download."""
    if spec.cached or spec.folder:
        return say("model.here")
    return say("model.download", size=bytes_words(spec.download_bytes))


def _option(one: Placed, number: int, chosen: str, proposal: Proposal) -> Markup:
    spec, changes, proposed = one.spec, one.changes, proposal.spec.name == one.spec.name
    facts = [
        spec.name if spec.source != "starter" else "",
        _kind(spec, bool(spec.about)),
        spec.licence or say("model.licence.unknown"),
        here_words(spec),
        say("model.login") if spec.gated and not spec.cached else "",
        say("model.changes") if changes else "",
    ]
    marks = [tag("span", say("model.tight"), class_="chip tight")] if one.tight else []
    if proposed:  # what taking it brings along, and what was measured of it
        changes = {**changes, **proposal.changes}
        marks.insert(0, tag("span", say("model.proposed"), class_="chip mark"))
        facts += [say("model.settings") if set(proposal.changes) - {"model.name"} else "", proposal.evidence]
    facts = [fact for fact in facts if fact]
    head = tag("span", tag("strong", spec.title), *marks, tag("span", spec.about, class_="about"), class_="model-head")
    takes = "fit.need" if one.group == "too_large" else "model.takes"
    need = tag("span", say(takes, size=gb_or_mb(one.peak_bytes)), class_="need")
    return tag(
        "div", head, " ", need, " ", tag("span", " · ".join(facts), class_="facts"),
        role="option", id=f"model-option-{number}", aria_selected="true" if chosen == spec.name else "false",
        data_name=spec.name, data_title=spec.title, data_words=" ".join((spec.title, *facts)).lower(),
        data_value=json.dumps({"model.name": spec.name, **changes}), data_proposed=proposed,
    )  # fmt: skip
