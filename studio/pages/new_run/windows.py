"""Open windows of New run: what each has chosen last, and what is known of that.

An edit sends all fields, which ``sent`` reads and makes the draft; a look finds there what the window chose last. A
choice does not wait for the look of an earlier one, which ends by itself.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from core.contract.config import RunConfig
from core.contract.errors import ConfigError
from core.estimate.by_fit import proposed
from core.estimate.fit import chosen
from core.machine.settings import read_settings
from studio.figures.queueing import card_taken, held_cards
from studio.pages.new_run.cache import cache_of
from studio.pages.new_run.form import CHOSEN, Form
from studio.pages.new_run.view import View
from studio.services.proposing import proposed_for, without_goal, without_hub
from studio.services.recent import Recent
from studio.services.services import Studio
from studio.services.session import Session
from studio.services.standing import caught_up, kept, touched

_KEPT = 64


class Windows:
    """The windows of one studio, by Gradio's session. Thread-safe."""

    def __init__(self, studio: Studio, form: Form) -> None:
        self.studio, self.form, self.drafts = studio, form, studio.drafts
        self.cache = cache_of(studio)
        self.looks: Recent[object] = Recent(_KEPT)
        """The newest look of each window."""
        self.faults: Recent[ConfigError | None] = Recent(_KEPT)
        """What is wrong with the fields that each window sent last."""
        self.edits: Recent[object] = Recent(_KEPT)
        """The newest edit of each window."""
        self._beside: Recent[frozenset[str]] = Recent(_KEPT)
        """What was set in each window while a field was at fault."""

    def sent(self, values: Sequence[Any], window: str, by_hand: str = "") -> View:
        """What is known of the sent fields (``as_chosen``), which become the draft, or what is wrong with them;
        ``by_hand``: the one that a person has just set."""
        with self.drafts.lock:
            base = self.drafts.of(window)
            beside = self._beside.get(window) or frozenset()
            try:
                session, wrong = self._read(values, window, base, by_hand), None
                self.drafts.edit(session, window)
            except ConfigError as error:
                session, wrong = base, error
                if by_hand in CHOSEN:
                    self.chose(values, window, {by_hand: self.form.sent(by_hand, values)})
            self._beside.put(window, beside | {by_hand} - {""} if wrong else frozenset())
            self.faults.put(window, wrong)
        return self.current(window, session.config) if wrong else self.view(session.config)

    def as_chosen(self, values: Sequence[Any], window: str, by_hand: str = "") -> Sequence[Any]:
        """The sent fields, with the file and the goal that the window chose last: the answer that writes them there may
        still be on its way to it. All as sent where nothing is known of the window, as after a restart."""
        known = self.drafts.shown.get(window) is not None
        return self.form.as_chosen(values, self.drafts.of(window), by_hand) if known else values

    def chose(self, values: Sequence[Any], window: str, changes: dict[str, Any]) -> View:
        """What is known after a choice that sets these fields, by their keys. It counts whatever is wrong with the
        others, and these as they were sent last: it may have taken a while."""
        with self.drafts.lock:
            if self.drafts.shown.get(window) is None:
                self.sent(values, window)
            base = self.drafts.of(window)
            fields = dict(zip(self.form.fields, self.form.values(base), strict=True))
            session = self.form.session([*(fields | changes).values()], base)
            self.drafts.edit(session, window)
        return self.current(window, session.config)

    def _read(self, values: Sequence[Any], window: str, base: Session, by_hand: str) -> Session:
        """The fields as a session. Raises ConfigError: values out of range, all of them."""
        session = self.form.session(self.as_chosen(values, window, by_hand), base)
        if by_hand:
            set_now = {by_hand, *(self._beside.get(window) or ())}
            own = touched(base.own, base.standing, {key: chosen(session.config, key) for key in set_now})
            session = replace(session, own=own, config=kept(session.config, base.config, base.own - set_now))
        if base.standing and not self.form.told(values, base):
            session = replace(session, config=caught_up(session.config, base.standing, {*session.own, by_hand}))
        return session

    def propose(self, window: str, config: RunConfig) -> tuple[Session, Session] | None:
        """The window's choices before and under a new proposal, where there is one for what it shows. None is made
        while a field is at fault: it would write over that."""
        if self.faults.get(window):
            return None
        with self.drafts.lock:
            session = replace(self.drafts.of(window), config=self.newest(window, config))
            if given := self.cache.given(session.config):
                made = proposed_for(session, given)
            elif self.cache.lacks_hub(session.config):
                made = without_hub(session)
            else:
                report = self.cache.report(session.config)
                made = without_goal(session, report) if report else None
            if made is None:
                return None
            self.drafts.edit(made, window)
            return session, made

    def view(self, config: RunConfig) -> View:
        """All that is known of these choices, for every part of the page."""
        view, draft = self.cache.glance(config), self.drafts.load()
        return replace(
            view,
            own=draft.own,
            standing=draft.standing,
            progress=self.cache.progress(view),
            proposal=proposed(self.cache.asked(view)),
            before=draft.before,
            settings=read_settings(self.studio.locations),
            card_taken=card_taken(self.studio.locations, view.job),
            held=held_cards(self.studio.locations, view.machine),
            made_from=self.cache.made_from(config.data.path),
        )

    def newest(self, window: str, config: RunConfig) -> RunConfig:
        """What the window has chosen since, else ``config``."""
        return self.drafts.shown.get(window) or config

    def current(self, window: str, config: RunConfig) -> View:
        """What is known of the window's newest choices. While its fields are at fault nothing is said of the run, and a
        look that is still at work does not write over the fault."""
        view, wrong = self.view(self.newest(window, config)), self.faults.get(window)
        return replace(view, form_fault=wrong, figures=None, waiting=False) if wrong else view
