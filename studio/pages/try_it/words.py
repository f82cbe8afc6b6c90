"""Words of the Try page."""

from studio.words.text import say as shared

_WORDS = {
    "try.title": "Try it",
    "try.about": "Talk with the model you trained, and with the original beside it.",
    "try.send": "Send",
    "try.send.scores": "Ask",
    "try.ask": "Your message",
    "try.chosen": "Chosen answer",
    "try.rejected": "Rejected answer",
    "try.base": "Original",
    "try.tuned": "Finetuned",
    "try.right": "Reference answer",
    "try.right.label": "Right label",
    # while the card is taken
    "try.living": "This run is training on the {device}. Between two steps it answers one question at a time, as it is "
    "now, at temperature 0. Conversations, other columns and other settings come back when it is paused or done.",
    "try.living.scores": "This run is training on the {device}: it answers between two steps, as it is now.",
    "try.living.two": "This run is training on the {device}: two texts can be asked once it is paused or done.",
    "try.gpu": "GPU",
    "try.cpu": "CPU",
    "try.held": "“{title}” is training on the {device}, so this model cannot be loaded now.",
    "try.held.until": "“{title}” is training on the {device}, so this model cannot be loaded now. Try again at about "
    "{time}.",
    "try.held.ask": "Ask that run",
    "try.streamed": "This model is larger than the card: its layers are copied there for every word, so answers come "
    "slowly.",
    "try.sampling": "Asked the training run: it answers between two steps.",
    # the first screen of a conversation
    "try.empty": "Ask a question, or begin with one that the model never saw:",
    "try.empty.none": "Ask a question to begin.",
    "try.kept": "Kept in this browser, on this machine.",
    "try.over": "Start over",
    # a turn
    "try.talk": "Questions and answers",
    "try.you": "You asked",
    "try.new": "New conversation",
    "try.copy": "Copy",
    "try.copied": "Copied",
    "try.not_copied": "Not copied",
    "try.retry": "Retry",
    "try.retry.what": "Ask again with another seed",
    "try.edit": "Edit",
    "try.edit.send": "Ask this instead",
    "try.edit.back": "Cancel",
    "try.stopped": "Stopped",
    "try.how": "Temperature {temperature}, seed {seed}",
    "try.said": "{who} answered: {text}",
    "try.said.fault": "{who} did not answer.",
    "try.passes": "passes",
    "try.fails": "fails",
    # columns
    "try.compare": "Compare with…",
    "try.compare.run": "Run",
    "try.compare.add": "Add column",
    "try.compare.base": "Add the original",
    "try.compare.full": "Five columns are the most. Remove one first.",
    "try.compare.scores": "This run gives scores, not answers.",
    "try.compare.empty": "This run has kept no checkpoint.",
    "try.columns": "Columns",
    "try.column.other": "{run} · {checkpoint}",
    "try.remove": "Remove {title}",
    "try.loading": "Loading the model, {seconds} s",
    "try.loading.cancel": "Cancel",
    "try.loading.said": "Loading the model.",
    # blind test
    "try.blind": "Blind test",
    "try.blind.about": "Hides which answer is whose until you have chosen.",
    "try.blind.two": "A blind test needs exactly two columns.",
    "try.blind.letters": "A,B",
    "try.blind.better": "{letter} is better",
    "try.blind.same": "About the same",
    "try.blind.chose": "You preferred {title}.",
    "try.blind.chose.same": "You found them about the same.",
    "try.tally": "Blind tests so far: {first} {wins}, {second} {losses}, same {same}",
    "try.tally.clear": "Clear tally",
    # held-out rows
    "try.row.next": "Next held-out row",
    "try.row.before": "Previous",
    "try.system": "System prompt",
    "try.system.hint": "The run's own stands here. Empty: none.",
}

say = shared.with_words(_WORDS)
