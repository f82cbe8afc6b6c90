"""Advanced: what is chosen for one is marked with its reason, what one chose oneself with the way back."""

from __future__ import annotations

import html
import json
import re

from core.contract.config import ModelChoice, RunConfig, TrainChoice
from core.contract.estimate import Resolved
from core.machine.hardware import Machine
from studio.pages.new_run.form import KNOBS
from studio.pages.new_run.train.block import auto_view
from studio.pages.new_run.view import View
from studio.services.session import AUTOMATIC, first

MACHINE = Machine((), 2, 2**34, 2**33, 2**35, "Linux", False)
CHOSEN = (Resolved(key="train.tokens_per_pass", value="4,096", reason="the fastest that fits"),)


def test_what_was_chosen_for_one_says_auto_and_why() -> None:
    shown = auto_view(View(first().config, MACHINE, resolved=CHOSEN))
    assert "Micro-batch size" in shown
    assert "the fastest that fits" in shown
    assert shown.count(">auto<") == 1
    assert "set by you" not in shown
    assert 'data-method="sft"' in shown
    assert auto_view(View(first().config, MACHINE)) == ""


def test_what_one_chose_oneself_is_marked_and_can_be_given_back() -> None:
    config = RunConfig(model=ModelChoice(dtype="float16"), train=TrainChoice(save_steps=50, seed=1, optim="adamw_8bit"))
    shown = auto_view(View(config, MACHINE, resolved=CHOSEN))
    assert shown.count("set by you") == 3, "a seed is nobody's but one's own"
    back = [json.loads(html.unescape(found)) for found in re.findall(r'data-value="([^"]*)"', shown)]
    assert {key: value for change in back for key, value in change.items()} == {
        "model.dtype": "auto", "train.optim": "auto", "train.save_steps": 0,
    }  # fmt: skip
    assert 'aria-label="Choose for me: Save every"' in shown


def test_everything_automatic_has_a_field_to_be_given_back_in() -> None:
    assert set(AUTOMATIC) <= KNOBS.keys()
