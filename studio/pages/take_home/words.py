"""Words of the take-home page."""

from studio.words.text import say as shared

_WORDS = {
    "checkpoint.best": "Best, step {step}",
    "checkpoint.best.before": "Best of the saved, step {step}",
    "checkpoint.last": "Last, step {step}",
    "checkpoint.other": "Step {step}",
    "checkpoint.loss": " (held-out loss {loss})",
    "checkpoint.loss.before": " (held-out loss {loss}, {before} before training)",
    "home.title": "Take it home",
    "home.about": "Writes what you trained into a folder, and reloads it with plain libraries before saying done.",
    "home.form": "What to take",
    "home.adapter": "The adapter alone",
    "home.adapter.for": "Small. For peft, for vLLM's LoRA, or to train on later; the base model is needed beside it.",
    "home.merged": "The whole model, merged",
    "home.merged.for": "16-bit safetensors, tokenizer, template and model card. For whatever runs such models.",
    "home.whole": "The whole model",
    "home.whole.for": "Every weight as it was trained, in 16-bit safetensors, with tokenizer, template and model card.",
    "home.script": "The run as a script",
    "home.script.for": "A short train.py on transformers, peft and TRL with your rows: trains the same without us.",
    "home.script.for.scores": "A short train.py on plain libraries with your rows: trains the same head without us.",
    "home.adapter.for.scores": "Small: the adapter, its trained head and the names of the scores. For peft; the base "
    "model is needed beside it.",
    "home.merged.for.scores": "One folder as transformers' classifiers are: weights, trained head and names of the "
    "scores. For a pipeline, or whatever runs such models.",
    "home.whole.for.scores": "One folder as transformers' classifiers are: every weight, the head and the names of the "
    "scores. For a pipeline, or whatever runs such models.",
    "home.python": "Lines of Python that use it",
    "home.size": "about {size}",
    "home.no_room": "Make {short} more room first.",
    "home.disk": "{free} free on this disk.",
    "home.name": "Name of the folder",
    "home.send": "Export",
    "home.progress": "Export progress",
    "home.stop": "Stop",
    "home.list": "Exports of this run",
    "home.command": "The same from the command line",
    "form.adapter": "Adapter",
    "form.merged": "Merged model",
    "form.whole": "Whole model",
    "form.script": "Script",
    "export.state.training": "Working",
    "state.starting.export": "Getting ready.",
    "export.done": "{form}, {size}. Reloaded afresh and checked:",
    "export.lost": "The export's process is gone. Export again.",
}

say = shared.with_words(_WORDS)
