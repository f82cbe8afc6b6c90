"""Words of the frame around every page, of the start, of notices, and of links to the glossary."""

_FRAME = {
    "nav.glossary": "Glossary",
    "nav.more": "More",
    "nav.proof": "Proof",
    "theme.title": "Light or dark",
    "theme.system": "as the system",
    "theme.light": "light",
    "theme.dark": "dark",
    "app": "Luthier",
    "app.about": "A finetuning studio for your own gaming GPU",
    "skip": "Skip to the page",
    "skip.start": "Skip to Start",
    "nav.label": "Pages",
    "nav.home": "Luthier, new run",
    "nav.new": "New run",
    "nav.watch": "Watch",
    "nav.history": "History",
    "nav.doctor": "Doctor",
    "nav.try": "Try it",
    "nav.take": "Take it home",
    "start.address": "Luthier is at   {address}\nCtrl+C closes the studio; runs go on without it.",
    "start.living": "Luthier already runs; opening it:   {address}",
    "start.other_port": "Port {default} is in use; taking {port}. Another one: --port N",
    "disk.full": "The disk of {home} is full. Delete runs or exports in the history to make room.",
    "start.no_browser": "No browser could be opened from here. Open the address above yourself.",
}

_NOTICE = {
    "notice.title": "When a run ends",
    "notice.tell": "Notify me on the desktop",
    "notice.sound": "Play a sound",
    "notice.about": "While a page of Luthier is open in this browser.",
    "notice.denied": "The browser forbids notifications of this page; its site settings can allow them.",
    "notice.none": "This browser has no notifications.",
}

_GLOSSARY = {
    "glossary.setting": "Setting:",
    "glossary.also": "See also:",
    "glossary.group": "What these words mean",
    "glossary.group.name": "What the words of “{group}” mean",
    "glossary.all": "All words",
    "glossary.readings": "What the readings mean",
    "glossary.choices": "What these words mean",
}

FRAME: dict[str, str] = {**_FRAME, **_NOTICE, **_GLOSSARY}
