"""Words of the Settings page."""

from studio.words.text import say as shared

_WORDS = {
    "settings.title": "Settings",
    "settings.saved": "Saved.",
    # the token
    "hub.title": "Hugging Face",
    "hub.about": "A token opens models that ask you to accept terms, private ones, and uploads.",
    "hub.none": "No token on this machine",
    "hub.file": "A token is saved on this machine",
    "hub.file.where": "In {file}, where every program that uses Hugging Face finds it.",
    "hub.variable": "A token comes from the variable {variable}",
    "hub.variable.where": "It is used instead of a saved one. For another token, change it where you start Luthier.",
    "hub.token": "Token",
    "hub.token.hint": "hf_…",
    "hub.token.make": "Make one at huggingface.co/settings/tokens. It is checked there and never shown again.",
    "hub.save": "Save token",
    "hub.saving": "Asking Hugging Face",
    "hub.saved": "Saved. Hugging Face knows this token.",
    "hub.remove": "Remove token",
    "hub.removed": "Removed from this machine. At Hugging Face it is still valid until you delete it there.",
    # how it looks
    "look.title": "Look",
    "look.about": "Kept in this browser; the menu “More” has it too.",
    "look.theme": "Theme",
    # being told
    "tell.title": "Notifications",
    "tell.desktop": "Tell me on the desktop when a run or the queue ends",
    "tell.desktop.about": "A message of this machine's desktop, also while no page of Luthier is open.",
    "tell.browser": "In this browser alone: “Tell me when it is done”, on Watch and History.",
    "tell.nothing": (
        "This machine has no program that shows such messages yet. On Linux it is notify-send, of the package "
        "libnotify-bin."
    ),
    # electricity
    "power.title": "Electricity",
    "power.about": "With a price, Run summary says what a run on your card will cost. 0 leaves it out.",
    "power.price": "Price per kWh",
    "power.currency": "Currency",
    "power.save": "Save price",
    # folders
    "folders.title": "Folders",
    "folders.about": "{free} free on the disk of {home}.",
    "folders.hub.free": "{free} free on its disk.",
    "folders.what": "What",
    "folders.where": "Where",
    "folders.size": "Size",
    "folders.do": "Clean up",
    "folders.home": "Everything of Luthier",
    "folders.home.about": "Move it with --home, or the variable LUTHIER_HOME.",
    "folders.runs": "Runs",
    "folders.runs.about": "Checkpoints, exports and reports. Delete runs in the history.",
    "folders.data": "Data files",
    "folders.data.about": "Copies of the files that runs trained on.",
    "folders.hub": "Hugging Face",
    "folders.hub.about": "Downloaded models and data sets, shared with other programs. Luthier deletes nothing here.",
    "folders.tokens": "Tokenized rows",
    "folders.tokens.about": "Kept so that preview, estimate and training do not tokenize twice.",
    "folders.findings": "What was found in data",
    "folders.findings.about": "Layout, lengths and findings of files that were looked at.",
    "folders.weights": "Quantized weights",
    "folders.weights.about": "A large model then loads in seconds.",
    "folders.copy": "Copy",
    "folders.copied": "Copied",
    "folders.not_copied": "Not copied",
    "folders.copy.name": "Copy the path: {what}",
    "folders.clear": "Clear",
    "folders.clear.name": "Clear: {what}",
    "folders.cleared": "{size} freed. What is needed is made again.",
    "folders.nothing": "Nothing was there to clear.",
    "folders.measuring": "…",
    "kept.title": "Tokenized rows by file ({count})",
    "kept.file": "File",
    "kept.tokenizer": "Tokenizer",
    "kept.rows": "Rows",
    "kept.tokens": "Tokens",
    "kept.size": "Size",
    "kept.used": "Last used",
    # about
    "about.title": "About",
    "about.privacy": "No telemetry: Luthier sends nothing about you, your data or your runs to anybody.",
    "about.version": "Luthier",
    "about.licence": "License",
    "about.links": "More of this machine: {doctor}, {proof}. Words: {glossary}.",
}

say = shared.with_words(_WORDS)
