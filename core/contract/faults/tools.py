"""What is said of Try, the memory probe, proofs, the bench and the other commands: message and hint by key."""

TOOLS = {
    "bench.again/no_file": ("Expected --json with --again: the file to go on from.", "Name it."),
    "bench.again/other_file": ("Expected a ladder's JSON in {name}, found something else.", ""),
    "bench.cap/no_card": ("Expected a card for --vram-gb to cap, found none.", "Leave --vram-gb out."),
    "bench.cap/no_room": ("Expected room beside the CUDA context in {vram_gb} GiB, found none.", ""),
    "bench.columns": (
        "Expected instruction and output, prompt and completion, messages or text, found {found}.",
        "Rename the columns.",
    ),
    "bench.file/no_json": ("Expected JSON rows in {name}, found: {reason}", "Another file."),
    "bench.file/no_list": ("Expected a list of rows in {name}, found another JSON value.", ""),
    "bench.ids": ("Expected token ids below {vocabulary}, found {highest}.", "Another --tokenizer."),
    "bench.memory": ("Expected room for the step, found the card full: {reason}", ""),
    "bench.parity": ("Expected every side's losses, found a failure. {failed}", ""),
    "bench.rows": (
        "Expected {wanted} rows for one step and the held-out, found {count}.",
        "Fewer rows a step, or a larger file.",
    ),
    "bench.setting": ("This cannot be measured", ""),
    "bench.tokenizer/missing": ("Expected a tokenizer folder or file, found none at {place}.", ""),
    "bench.tokenizer/not_named": ("Expected a tokenizer for a file's rows, found none.", "Name --tokenizer."),
    "demo.unfinished": ("The demo's run did not finish.", "Its log: {log}"),
    "glossary.unknown": ("Expected a word of the glossary, found {asked!r}.", "{hint}"),
    "probe.cancelled": ("The probe was stopped.", ""),
    "probe.died": ("The probe ended without a result ({reason}). {last}", "Try it again."),
    "probe.memory": (
        "Expected room for a step of {tokens:,} tokens, found the card full.",
        "Choose one of the changes that make it fit.",
    ),
    "probe.shape": (
        "Expected to make a model of {title}'s shape, found: {reason}",
        "Download the model first; the probe then takes it as it is.",
    ),
    "probe.slow": ("Expected the probe's result within {minutes:.0f} minutes, found none.", ""),
    "proof.busy/delete": ("{proof_id} is at work and cannot be deleted.", "Stop it first."),
    "proof.busy/start": ("Expected no proof of {kind} at work, found one.", "Wait for it, or stop it."),
    "proof.kind": ("Expected one of {kinds}, found {kind!r}.", ""),
    "proof.request": (
        "Expected what is to be proven in {path}, found nothing that can be read.",
        "Ask for the proof again.",
    ),
    "proof.unknown": ("Expected a proof, found none called {proof_id!r}.", ""),
    "talk.busy": ("Another question is being answered.", "Wait for it, or stop it."),
    "talk.died": ("The model that answers ended ({reason}). {last}", "Ask again: it is started anew."),
    "talk.fault": ("The model could not answer: {words}", "Ask something else, or another checkpoint."),
    "talk.question": ("{place}: {problem}, found {value!r}.", ""),
    "talk.slow": (
        "Expected a word from the model within {minutes:.0f} minutes, found none: it was ended.",
        "Ask again: it is started anew.",
    ),
    "talk.unanswered": (
        "Expected an answer of the training run, found none in time.",
        "Ask again when the run is paused or done.",
    ),
    "talk.word": ("Expected a question, found a line that is none.", ""),
}
