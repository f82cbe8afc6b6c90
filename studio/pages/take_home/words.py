"""Words of the take-home page."""

from studio.words.text import say as shared

_WORDS = {
    "checkpoint.best": "Best, step {step}",
    "checkpoint.best.before": "Best of the saved, step {step}",
    "checkpoint.last": "Last, step {step}",
    "checkpoint.other": "Step {step}",
    "checkpoint.measure": " (held-out {name} {value})",
    "checkpoint.measure.before": " (held-out {name} {value}, {before} before training)",
    "home.title": "Take it home",
    "home.about": "Writes what you trained to a folder, then reloads and checks it.",
    "home.form": "Format",
    "home.adapter": "Adapter only",
    "home.adapter.for": "Small. For peft, for vLLM's LoRA, or to train on later; the base model is needed beside it.",
    "home.merged": "Merged model",
    "home.merged.for": "16-bit safetensors, tokenizer, template and model card. For any program that runs such models.",
    "home.whole": "Whole model",
    "home.whole.for": "Every weight as it was trained, in 16-bit safetensors, with tokenizer, template and model card.",
    "home.script": "The run as a script",
    "home.script.for": (
        "A short train.py on transformers, peft and TRL with your rows: trains the same model without Luthier."
    ),
    "home.script.for.scores": (
        "A short train.py on plain libraries with your rows: trains the same head without Luthier."
    ),
    "home.adapter.for.scores": "Small: the adapter, its trained head and the names of the scores. For peft; the base "
    "model is needed beside it.",
    "home.merged.for.scores": "One folder as transformers' classifiers are: weights, trained head and names of the "
    "scores. For a pipeline, or any program that runs such models.",
    "home.whole.for.scores": "One folder as transformers' classifiers are: every weight, the head and the names of the "
    "scores. For a pipeline, or any program that runs such models.",
    "home.gguf": "GGUF, for Ollama and llama.cpp",
    "home.gguf.for": "One file, also without a GPU: for Ollama, LM Studio, llama.cpp, text-generation-webui.",
    "home.gguf_adapter": "Adapter as GGUF",
    "home.gguf_adapter.for": (
        "Small. llama.cpp and Ollama load it on top of the base model, which you need as GGUF too."
    ),
    "home.quantisation": "Quantization",
    "home.importance": "Importance matrix",
    "home.importance.use": "Rows of this run say which weights matter most, so that few bits lose less. Takes minutes "
    "longer.",
    "home.weights": "Base weights",
    "home.weights.use": "The run trained beside 4-bit weights. On the original ones the adapter usually does better; "
    "on the 4-bit ones it is exactly what was measured.",
    "home.options.words": "What GGUF and quantization mean",
    "home.missing": "This format needs {packages}, which is not installed. Install it, then reload this page:",
    "weights.original": "The original ones, 16 bits",
    "weights.trained_on": "As in training, 4 bits",
    "kind.bf16": "Loses nothing of weights in bfloat16. For GPUs that support it, and to quantize later.",
    "kind.f16": "Loses nothing noticeable, and every llama.cpp runs it.",
    "kind.q8_0": "Hardly anything is lost, at half the size.",
    "kind.q6_k": "Very little is lost.",
    "kind.q5_k_m": "Little is lost.",
    "kind.q4_k_m": "The usual choice: small and fast. What it loses is measured and shown.",
    "kind.q4_0": "The simplest 4 bits: fastest on some processors and phones, and loses most.",
    "home.python": "Python",
    "home.uses": "How to use it",
    "home.lines": "Lines for {title}",
    "hub.title": "Put it on the Hugging Face Hub",
    "hub.to": "Repository",
    "hub.example": "your-name/model",
    "hub.token": "Token",
    "hub.token_use": "One with write access. It is sent to the hub only, and not stored here.",
    "hub.login": "Empty: this machine's login. A token entered here is not stored.",
    "hub.private": "Private",
    "hub.private_use": "Only you can see it. The model card names the data but contains none of it.",
    "hub.send": "Upload",
    "hub.progress": "Upload progress",
    "hub.there": "There, for everybody to see:",
    "hub.there_private": "There, private:",
    "home.size": "about {size}",
    "home.no_room": "Free {short} more first.",
    "home.disk": "{free} free on this disk.",
    "home.name": "Folder name",
    "home.send": "Export",
    "home.progress": "Export progress",
    "home.stop": "Stop",
    "home.list": "Exports of this run",
    "home.command": "The same from the command line",
    "form.adapter": "Adapter",
    "form.merged": "Merged model",
    "form.whole": "Whole model",
    "form.gguf": "GGUF",
    "form.gguf_adapter": "GGUF adapter",
    "form.script": "Script",
    "export.state.training": "Working",
    "state.starting.export": "Getting ready.",
    "export.done": "{form}, {size}. Reloaded afresh and checked:",
    "export.lost": "The export's process has ended. Export again.",
    "export.kept": "{size} of it are kept for a day: exporting under the same name continues from there.",
}

say = shared.with_words(_WORDS)
