"""What pages say where the faults of ``core.contract.faults.tools`` come up."""

from studio.words.faults.kinds import Words

TOOLS: dict[str, Words] = {
    "bench.again/no_file": (
        "To measure again, the file with the earlier results is needed.",
        "Name that file with --json.",
    ),
    "bench.again/other_file": (
        "{name} does not hold the results of a ladder.",
        "Choose a file that the ladder has written, or measure from the start.",
    ),
    "bench.cap/no_card": (
        "There is no graphics card here whose memory could be limited.",
        "Leave --vram-gb out.",
    ),
    "bench.cap/no_room": (
        "{vram_gb} GiB of GPU memory are taken up by the CUDA context alone.",
        "Allow more GPU memory.",
    ),
    "bench.columns": (
        "These columns hold nothing to train on: {found}.",
        "Name them instruction and output, prompt and completion, messages, or text.",
    ),
    "bench.file/no_json": ("The rows in {name} cannot be read: {reason}", "Choose another file."),
    "bench.file/no_list": ("{name} does not hold a list of rows.", "Choose a JSON file that is one list of rows."),
    "bench.ids": (
        "The tokenizer gives the token {highest}, but the model knows only tokens below {vocabulary}.",
        "Name the model's own tokenizer with --tokenizer.",
    ),
    "bench.labels": (
        "{name} needs rows of a text and a label, with at least two different labels; it has {found}.",
        "Name the columns text (or sentence) and label, or put them first, in this order.",
    ),
    "bench.memory": (
        "The GPU memory ran out in this step: {reason}",
        "Close other programs that use the card, or measure a smaller step.",
    ),
    "bench.parity": ("Not every side could be measured: {failed}", "Measure again once this is solved."),
    "bench.rows": (
        "One step and the held-out rows need {wanted} rows, and there are {count}.",
        "Take fewer rows a step, or a larger file.",
    ),
    "bench.setting": ("This cannot be measured with these settings.", "Change the following:"),
    "bench.tokenizer/missing": ("There is no tokenizer in {place}.", "Choose a tokenizer's folder or file."),
    "bench.tokenizer/not_named": ("Rows of a file need a tokenizer, and none is named.", "Name one with --tokenizer."),
    "demo.unfinished": ("The demo's run ended before it had finished.", "Its log tells why: {log}"),
    "glossary.unknown": "The glossary has no word “{asked}”.",
    "probe.cancelled": "The test was stopped.",
    "probe.died": "The test ended without a result ({reason}). {last}",
    "probe.memory": (
        "The GPU memory ran out in a step of {tokens:,} tokens.",
        "Choose one of the changes under “Make it fit”, or close other programs that use the card.",
    ),
    "probe.shape": (
        "The test could not build a model of the shape of {title}: {reason}",
        "Download the model first: the test then uses the model itself.",
    ),
    "probe.slow": (
        "The test had no result after {minutes:.0f} minutes and was ended.",
        "Press “Test again”, or choose a smaller model.",
    ),
    "proof.busy/delete": ("{proof_id} is still at work and cannot be deleted.", "Press Stop first."),
    "proof.busy/start": ("A proof of this kind ({kind}) is already at work.", "Wait for it, or press Stop."),
    "proof.eight": (
        "There is no graphics card here that multiplies 8-bit numbers.",
        "Prove it on a machine with an RTX 20 card or a newer one.",
    ),
    "proof.failed/exit_code": (
        "The measurement ended before it had finished (exit code {exit_code}).",
        "Start it once more.",
    ),
    "proof.failed/said": ("The measurement failed: {last}", "Start it once more."),
    "proof.fault": (
        "The measurement was cut short: {reason}",
        "Start it once more. The file worker.log in the proof's folder has the details.",
    ),
    "proof.kind": ("There is no proof called {kind}.", "Choose one of: {kinds}."),
    "proof.request": ("{path}, which says what to prove, cannot be read.", "Start the proof once more."),
    "proof.unknown": ("There is no proof {proof_id} any more.", "Load the page again to see those that are there."),
    "talk.busy": ("Another question is still being answered.", "Wait for its answer, or press Escape."),
    "talk.died": "The model that answers has ended ({reason}). {last}",
    "talk.fault": ("The model could not answer: {words}", "Ask something else, or choose another checkpoint."),
    "talk.question": ("The question cannot be asked: {place} is {value!r}. {problem}.", "Change it, then ask again."),
    "talk.slow": "The model said nothing for {minutes:.0f} minutes and was ended.",
    "talk.two": "A run that is training reads one text at a time, not two.",
    "talk.unanswered": "The run did not answer in time.",
    "talk.word": ("The question did not arrive whole at the model.", "Ask again."),
}
