"""Words of the doctor page."""

from studio.words.text import say as shared

_WORDS = {
    "doctor.title": "Doctor",
    "doctor.about": "What this machine has, and what would help it. Folders and caches: ",
    "doctor.do": "Do: ",
    "doctor.fault": "Fault. ",
    "doctor.advice": "Advice. ",
    "doctor.fine": "",
}

say = shared.with_words(_WORDS)
