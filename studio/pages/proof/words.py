"""Words of the Proof page."""

from studio.words.text import say as shared

_WORDS = {
    "proof.title": "Proof",
    "proof.about": (
        "Measures on this machine that Luthier's fast core is correct, and how fast it is. A measurement goes on when "
        "this page is closed, waits for runs, and is kept with driver and versions."
    ),
    "proof.on.card": "It is measured on your {card}.",
    "proof.on.cpu": "There is no GPU here, so the plain formulas run, on a tiny model. This shows that they are "
    "correct; how fast a card is can only be measured on one.",
    "proof.kernels": "Correct: every operation",
    "proof.kernels.about": "Each operation of the fast core, forward and backward, against float64. It passes if "
    "its error is at most one and a half times that of plain PyTorch in the same precision.",
    "proof.kernels.start": "Test every operation",
    "proof.parity": "The same result: 20 steps",
    "proof.parity.about": "Trains 20 steps fast and plain (Hugging Face's Trainer and PEFT as they come), from the "
    "same weights on the same rows, and compares every loss with plain's own rounding (parity).",
    "proof.parity.start": "Train side by side",
    "proof.ladder": "Faster: one change at a time",
    "proof.ladder.about": "From plain training to the fast core, one optimization a row: seconds, memory and loss "
    "beside the row before (ladder). It takes the longest.",
    "proof.ladder.start": "Measure one by one",
    "proof.eight": "8 bits: what they cost",
    "proof.eight.about": "Trains the built-in model 300 steps on its samples, in 16 bits and in each 8-bit "
    "arithmetic of the card, with three seeds each, and compares the loss of held-out rows and the answers to their "
    "questions. Runs set to auto then take what is proven here.",
    "proof.eight.start": "Prove 8 bits",
    "proof.eight.cpu": "It needs a graphics card: an RTX 20 or newer.",
    "proof.eight.proven": "{names} proven",
    "proof.eight.none": "not proven",
    "proof.eight.and": " and ",
    "proof.eight.higher": "{share} higher",
    "proof.eight.lower": "{share} lower",
    "proof.eight.agrees": "{name} is proven on this card: after {steps} steps its held-out loss is {far} than in 16 "
    "bits, whose own seeds lie {spread} apart.",
    "proof.eight.apart": "{name} is not proven: after {steps} steps its held-out loss is {far} than in 16 bits; "
    "{allowed} is allowed.",
    "proof.eight.worst": "{name} is not proven: on average its held-out loss is {far} than in 16 bits, but with one "
    "seed the two lie {worst} apart, where 16 bits' own seeds lie {spread} apart.",
    "proof.eight.lost": "{name} is not proven: its loss was no number any more.",
    "proof.eight.answers": "Of {asked} held-out questions it answers {eight} word for word as the samples do, 16 bits "
    "{sixteen}.",
    "proof.eight.range": "{low} to {high}",
    "proof.eight.step": "Held-out loss at step",
    "proof.eight.picture": "Held-out loss beside 16 bits, step by step",
    "proof.eight.spread": "16 bits, three seeds",
    "proof.eight.side": "{name} (dots: each seed)",
    "proof.eight.layer": "Layer {number}: {degrees}°, cosine {cosine}",
    "proof.eight.turned": "{name}: gradients of each layer, turned by {degrees}° at most (cosine {cosine})",
    "proof.eight.unknown": "–",
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
    "proof.unreadable.note": "Its result file is damaged. Delete it, and measure again.",
    "proof.lost": "It ended without a result. Start it again.",
    "proof.ran.kernels": "The Triton kernels ran.",
    "proof.ran.textbook": "The plain formulas ran, as they do without a GPU: this says nothing about the GPU kernels.",
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
    "proof.head.spread": "Plain, run twice",
    "proof.head.distance": "Fast against plain",
    "proof.head.judge": "Plain in float32",
    "proof.head.rung": "Change added",
    "proof.head.seconds": "Seconds per step",
    "proof.head.speed": "Tokens per second",
    "proof.head.saved": "Saved",
    "proof.head.plain_saved": "Saved in all",
    "proof.head.peak": "Peak memory",
    "proof.head.loss": "Last loss",
}

say = shared.with_words(_WORDS)
