"""Words of the Try page."""

from studio.words.text import say as shared

_WORDS = {
    "try.title": "Try it against the original",
    "try.about": "Ask the original model and the one you trained the same question.",
    "try.send": "Ask both",
    "try.send.scores": "Ask",
    "try.chosen": "Chosen answer",
    "try.rejected": "Rejected answer",
    "try.living.scores": "This run is training: it answers between two steps, as it is now.",
    "try.living.two": "This run is training: two texts can be asked once it is paused or done.",
    "try.row.next": "Next held-out row",
    "try.row.before": "Previous",
    "try.base": "Original",
    "try.tuned": "Finetuned",
    "try.right": "Right answer",
    "try.right.label": "Right label",
    "try.title.scores": "Try it",
    "try.living": "This run is training: it answers between two steps, as it is now, with the likeliest words.",
    "try.sampling": "Asked the training run; it answers between two steps.",
}

say = shared.with_words(_WORDS)
