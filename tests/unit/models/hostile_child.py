"""Asks every way in about every folder of ROOT/WAY, and listens; for a process of its own.

What Python itself did meanwhile is heard by an audit hook: a pickle that was opened, a file of ``outside`` that was
opened or changed, a module of a hostile folder that was run. One line of JSON for each folder.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from core.contract.errors import Fault
from core.machine.imports import importing

HEARD: list[str] = []
WATCHED = ("open", "pickle.find_class", "exec", "import", "os.remove", "os.rename", "os.mkdir", "os.system")


def main(root: Path, ways: list[str]) -> None:
    """Every folder under ``root/way``, for each way."""
    outside = str(root / "outside")

    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        if event in WATCHED and event != "import":
            said = f"{event} {arguments!r}"[:400]
            if event == "pickle.find_class" or outside in said or (event == "exec" and str(root) in said):
                HEARD.append(said)

    asked = {"light": light, "heavy": heavy, "swelling": swelling, "adapters": adapters, "control": control}
    with importing():  # before anything is listened to: imports are no folder's doing
        questions = {way: asked[way]() for way in ways}
    sys.addaudithook(hear)
    for way, ask in questions.items():
        for folder in sorted((root / way).iterdir()):
            for name, question in ask.items():
                said = {"way": way, "folder": folder.name, "asked": name, **answer(question, folder)}
                print("ANSWER " + json.dumps(said), flush=True)


def answer(question: Callable[[Path], object], folder: Path) -> dict[str, Any]:
    """Code and text of the refusal, empty where there was none; seconds; and what was heard."""
    HEARD.clear()
    started, code, text = time.monotonic(), "", ""
    try:
        question(folder)
    except Fault as error:
        code, text = error.code, str(error)
    except BaseException as error:  # what is no Fault is what this looks for
        code, text = "UNEXPECTED", repr(error)[:300]
    return {"code": code, "text": text, "seconds": time.monotonic() - started, "heard": list(HEARD)}


def light() -> dict[str, Callable[[Path], object]]:
    """What the window, the listing and the command line ask."""
    from core.models.catalog import check_folder, find_model

    return {"check_folder": check_folder, "find_model": lambda folder: find_model("folder", str(folder))}


def heavy() -> dict[str, Callable[[Path], object]]:
    """What worker, probe and Try do with a folder that an earlier word calls a model."""
    import torch

    from core.chat.generator import load_chat_model
    from core.chat.messages import Setup
    from core.contract.catalogue import ModelSpec
    from core.contract.config import DataChoice, ModelChoice, RunConfig
    from core.model.loading.together import ALONE
    from core.models.catalog import starter
    from core.proof.probe import measure
    from core.train import setup as worker
    from core.train.channel.channel import Channel

    choice = ModelChoice(source="folder", quantization="none")
    config, spec, device = RunConfig(), starter(), torch.device("cpu")

    class Quiet:
        def stage(self, *_: object) -> None: ...

    channel = Channel.unsteered(Quiet())  # type: ignore[arg-type]
    setup = {"model": choice, "data": DataChoice(), "trained": "", "home": ""}

    def named(folder: Path) -> ModelSpec:
        return spec.model_copy(update={"folder": str(folder)})

    return {
        "worker": lambda folder: worker._load(config, named(folder), (device, None), channel, ALONE),
        "probe": lambda folder: measure._load(config, named(folder), device),
        "try": lambda folder: load_chat_model(Setup(folder=str(folder), **setup)),  # type: ignore[arg-type]
    }


def swelling() -> dict[str, Callable[[Path], object]]:
    """The same, and what preview and export do with a tokenizer alone."""
    from core.data.render.chat_tokens import load_tokenizer

    return {"tokenizer": load_tokenizer, **heavy()}


def adapters() -> dict[str, Callable[[Path], object]]:
    """What resuming from a run, Try and the export ask of an adapter."""
    from core.model.adapters import load_adapter
    from core.models.checks.adapter import check_adapter

    return {"check": check_adapter, "load": lambda folder: load_adapter(None, folder, trainable=True)}


def control() -> dict[str, Callable[[Path], object]]:
    """What must be heard, or the silence of the others means nothing."""
    import pickle
    import runpy

    return {
        "unpickles": lambda folder: pickle.loads((folder / "payload").read_bytes()),
        "opens": lambda folder: (folder.parents[1] / "outside" / "secret.json").read_text(),
        "runs": lambda folder: runpy.run_path(str(folder / "module.py")),
    }
