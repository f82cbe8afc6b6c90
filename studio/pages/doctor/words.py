"""Words of the doctor page."""

from studio.words.text import say as shared

_WORDS = {
    "doctor.title": "Doctor",
    "doctor.about": "What this machine has, and what would help it.",
    "doctor.do": "Do: ",
    "doctor.fault": "Fault. ",
    "doctor.advice": "Advice. ",
    "doctor.fine": "",
    "cache.title": "Tokenized rows",
    "cache.about": "Rows are tokenized once and kept, so that preview, estimate and training do not repeat it.",
    "cache.none": "Nothing is stored.",
    "cache.total": "{size} in total.",
    "cache.file": "File",
    "cache.tokenizer": "Tokenizer",
    "cache.rows": "Rows",
    "cache.tokens": "Tokens",
    "cache.size": "Size",
    "cache.used": "Last used",
    "cache.clear": "Clear all",
    "cache.cleared": "{size} freed.",
}

say = shared.with_words(_WORDS)
