"""Words of the doctor page."""

from studio.words.text import say as shared

_WORDS = {
    "doctor.title": "Doctor",
    "doctor.about": "What this machine has, and what would help it.",
    "doctor.do": "Do: ",
    "doctor.fault": "Fault. ",
    "doctor.advice": "Advice. ",
    "doctor.fine": "",
    "cache.title": "Tokenised rows",
    "cache.about": "Rows are tokenised once and kept, so that preview, estimate and training need not do it again.",
    "cache.none": "Nothing is kept.",
    "cache.total": "{size} in all.",
    "cache.file": "File",
    "cache.tokenizer": "Tokenizer",
    "cache.rows": "Rows",
    "cache.tokens": "Tokens",
    "cache.size": "Size",
    "cache.used": "Used last",
    "cache.clear": "Clear all",
    "cache.cleared": "{size} freed.",
}

say = shared.with_words(_WORDS)
