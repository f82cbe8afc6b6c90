"""Gradio's part of the window: what an answer does not name costs nothing."""

from __future__ import annotations

import gradio as gr
from fastapi import FastAPI
from fastapi.testclient import TestClient
from gradio.state_holder import SessionState
from waiting import run_apart

from studio.server.unheard import Unheard
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


def test_a_stream_of_a_page_that_was_left_ends_and_raises_nothing() -> None:
    """Gradio raises within it; the server would print that as a fault of ours."""
    app = FastAPI()
    with gr.Blocks() as blocks:
        gr.Number(1)
    gr.mount_gradio_app(app, blocks, path="/")
    app.add_middleware(Unheard, queue=blocks._queue)
    answer = TestClient(app).get("/gradio_api/queue/data", params={"session_hash": "left"})
    assert answer.status_code == 200
    assert '"session_not_found":true' in answer.text
