"""Gradio's part of the window: what an answer does not name costs nothing."""

from __future__ import annotations

import gradio as gr
from gradio.state_holder import SessionState
from waiting import run_apart

from studio.server.window import Window


def test_what_an_answer_leaves_alone_is_not_made_anew() -> None:
    with Window() as blocks:
        alone, named, other = gr.Number(1), gr.Textbox(), gr.Checkbox()
        alone.change(lambda: None, None, [alone, named, other])
    (asked,) = blocks.fns.values()
    state = SessionState(blocks)
    said = run_apart(blocks.postprocess_data(asked, {other: gr.update(visible=False), named: "so"}, state))
    assert said == [gr.skip(), "so", {"__type__": "update", "visible": False}]
    assert [state[one._id] is one for one in (alone, other)] == [True, False]
    assert asked.outputs == [alone, named, other]
    assert run_apart(blocks.postprocess_data(asked, {named: "alone"}, state)) == [gr.skip(), "alone", gr.skip()]
