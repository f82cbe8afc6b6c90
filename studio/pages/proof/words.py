"""Words of the Proof page."""

from studio.words.text import say as shared

_WORDS = {
    "proof.title": "Proof",
    "proof.about": (
        "What the fast core does on this machine, measured when you ask. A proof goes on when this page is "
        "closed, waits for runs, and is kept with driver and versions."
    ),
    "proof.on.card": "It is measured on your {card}.",
    "proof.on.cpu": "No GPU answers here, so the textbook's formulas run, on a tiny model. What is proven is that they "
    "are right; how fast a card would be cannot be proven without one.",
    "proof.kernels": "Right: every op",
    "proof.kernels.about": "Each op of the fast core, forward and backward, against float64. Its error may be one "
    "and a half times that of plain PyTorch in the same precision.",
    "proof.kernels.start": "Test every op",
    "proof.parity": "The same: 20 steps",
    "proof.parity.about": "Trains 20 steps fast and plain (Hugging Face's Trainer and PEFT as they come), from the "
    "same weights on the same rows, and compares every loss with plain's own rounding (parity).",
    "proof.parity.start": "Train side by side",
    "proof.ladder": "Fast: one thing at a time",
    "proof.ladder.about": "From plain training to the fast core, one optimization a row: seconds, memory and loss "
    "beside the row before (ladder). The longest of the three.",
    "proof.ladder.start": "Climb the ladder",
    "proof.stop": "Stop",
    "proof.starting": "Starting",
    "proof.waiting": "Waiting: {who}.",
    "proof.part": "{done} of {total}:",
    "proof.progress": "Progress of {what}",
    "proof.results": "What was found",
    "proof.none": "Nothing has been measured on this machine yet.",
    "proof.agrees": "agrees",
    "proof.differs": "differs",
    "proof.nearer": "nearer to float32",
    "proof.judged": "At step {steps} the fast side lies outside of what plain strays from itself. So plain trained "
    "once more in float32: at {nearer} of {count} such steps the fast loss is nearer to that than plain's is.",
    "proof.judged.why": "Plain adds the adapter's small product to a number that is already rounded to 16 bits; the "
    "fast side adds both first and rounds once.",
    "proof.unjudged": "At step {steps} the fast side lies outside of what plain strays from itself. Who of the two is "
    "nearer to float32 could not be found out: {error}",
    "proof.measured": "measured",
    "proof.unreadable": "Unreadable",
    "proof.unreadable.note": "Its result file is not as it was written. Delete it, and ask again.",
    "proof.lost": "The process is gone and left no last word. Ask again.",
    "proof.ran.kernels": "The Triton kernels ran.",
    "proof.ran.textbook": "The textbook's formulas ran, as they do without a GPU: nothing is said of kernels here.",
    "proof.device": "Measured on",
    "proof.driver": "Driver",
    "proof.versions": "Versions",
    "proof.took": "Took",
    "proof.delete": "Delete",
    "proof.figures": "Figures",
    "proof.held_out": "Held-out loss",
    "proof.head.op": "Op",
    "proof.head.dtype": "Precision",
    "proof.head.ours": "Our error",
    "proof.head.plain": "PyTorch's error",
    "proof.head.allowed": "Allowed",
    "proof.head.verdict": "Verdict",
    "proof.head.spread": "Plain from itself",
    "proof.head.distance": "Fast from plain",
    "proof.head.judge": "Plain in float32",
    "proof.head.rung": "With this, too",
    "proof.head.seconds": "Seconds per step",
    "proof.head.speed": "Tokens per second",
    "proof.head.saved": "Saved",
    "proof.head.plain_saved": "Saved in all",
    "proof.head.peak": "Peak memory",
    "proof.head.loss": "Last loss",
}

say = shared.with_words(_WORDS)
