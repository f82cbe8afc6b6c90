"""What pages say where the faults of ``core.contract.faults.runs`` come up."""

from studio.words.faults.kinds import Words

_MERGED = "Export “Merged model” (or “Whole model”) instead."
_KEPT_NONE = f"Nothing was kept. {_MERGED}"
_DETAILS = "The file worker.log in the run's folder has the details."
_SET = "Change the following:"
_SAVE = "Press “Save now” on the Watch page while the run trains, or resume the run until it has saved one."

RUNS: dict[str, Words] = {
    "checkpoint.adapter": (
        "{name} holds another adapter than this run trains: {key} does not fit.",
        "This checkpoint belongs to another run. Start a new run.",
    ),
    "checkpoint.damaged": ("{name} is damaged: {problem}.", "Choose another checkpoint."),
    "checkpoint.optimizer": (
        "{name} was saved by an earlier version of Luthier, and the state of its optimizer can no longer be read.",
        "Start a new run from this one (resume_from): it takes the adapter, and the optimizer begins afresh.",
    ),
    "checkpoint.unreadable": (
        "{name} was saved just now, but cannot be read back: {problem}.",
        "The disk may be failing. Check it, then press Resume.",
    ),
    "compare.count": ("Two to {most} runs can be compared. Chosen: {count}.", "Choose them on the History page."),
    "config.faults/before_start": ("The run cannot start with these settings.", _SET),
    "config.faults/file": ("The settings in {name} cannot be used: {count}.", _SET),
    "config.faults/form": ("Settings that cannot be used: {count}.", _SET),
    "config.faults/run": ("Settings that do not go together: {count}.", _SET),
    "config.method": (
        "The method {method} learns from {wants}, and the rows in {name} are of another kind: {layout}.",
        "Choose the method {default}, leave the choice to the data (auto), or choose a file that has such rows.",
    ),
    "config.preset/faults": (
        "The goal “{preset}” has settings that cannot be used.",
        "Choose another goal, or change the following in its file:",
    ),
    "config.preset/flat_key": (
        "The goal “{preset}” has a setting that does not exist: {key}.",
        "Choose another goal, or write the setting with its group in front, with a dot between.",
    ),
    "config.preset/no_fields": (
        "{name} should hold settings, and is read as {kind}.",
        "This file came with Luthier. Put it back as it was.",
    ),
    "config.preset/no_model": (
        "The model “{key}” is not in Luthier's list.",
        "Choose another goal. The folder presets/models holds the list.",
    ),
    "config.preset/unknown": ("There is no goal called “{key}”.", "Choose one of: {known}."),
    "config.unreadable": ("{path} cannot be opened: {reason}.", "Check the path, and whether you may open the file."),
    "config.yaml/no_fields": (
        "{path} holds no settings: it is read as {kind}.",
        "Write a setting on each line, as in “name: value”. The README shows such a file.",
    ),
    "config.yaml/syntax": ("{path} cannot be understood: {reason}.", "Correct that line of the file."),
    "export.dtype": "{name} is stored as {dtype}, which PyTorch cannot read.",
    "export.exists": (
        "There is an export called {name} already.",
        "Write another name into “Folder name”.",
    ),
    "export.form": ("A run that trained {words} cannot be exported as {form}.", "Choose {forms}."),
    "export.llama": (
        "What was written cannot be read by llama.cpp: {reason}",
        f"{_KEPT_NONE} The file worker.log of this export has the details.",
    ),
    "export.mismatch": (
        "{name} should have the shape {shape} in the base model's files, which have {found}.",
        "Use the base model that the run was trained on, or export “Adapter only”.",
    ),
    "export.base": (
        "The base model on this machine ({now}) is not the one that this run was trained on ({then}).",
        "Put back the one that it was trained on. Added to another model, the adapter is only noise.",
    ),
    "export.base/gone": (
        "{title} in revision {revision}, which this run was trained on, is no longer on this machine.",
        "Download that revision again, then press Export.",
    ),
    "export.base/no_folder": (
        "The base model that this run was trained on is no longer in {folder}.",
        "Put it back there, then press Export.",
    ),
    "export.name": (
        "A folder cannot be called {name} on Windows: {reason}.",
        "Write another name into “Folder name”.",
    ),
    "export.needs": (
        "To write {form}, {missing} must be installed first.",
        "Run this in a terminal, then load this page again: {command}",
    ),
    "export.nothing": ("{run_id} has saved no checkpoint yet, so there is nothing to export.", _SAVE),
    "export.package": (
        "This format needs the package {package}, which is not installed.",
        "Run this in a terminal, then export again: {python} -m pip install {package}",
    ),
    "export.request/file": ("{path}, which says what to export, cannot be read.", "Press Export again."),
    "export.request/option": (
        "“{value}” cannot be used for the option {option}. It takes {expected}.",
        "Change it, then export again.",
    ),
    "export.script": (
        "Plain transformers, peft and TRL cannot repeat this run, because it uses {what}.",
        "Export the weights instead, or train with another setting.",
    ),
    "export.rows": (
        "An export as {form} holds rows of your data, and these are sent nowhere.",
        "Export the weights, and send those.",
    ),
    "export.unfinished": (
        "The export {name} of {run_id} is not finished, or is gone.",
        "Wait until it is done, or press Export.",
    ),
    "export.unknown": ("{run_id} has no export called {name}.", "Load the page again to see those that are there."),
    "export.unknown_part": (
        "The adapter has a part that cannot be merged into the model: {name}.",
        "Export “Adapter only” instead.",
    ),
    "export.request/unread": (
        "The format {form} makes no use of the option {option}. Those that it reads: {reads}.",
        "Leave the option out, or choose another format.",
    ),
    "export.weights": (
        "This run was trained on {words}, so there are no 4-bit weights to merge the adapter into.",
        "Set “Base weights” to “The original ones, 16 bits”: it was trained on these.",
    ),
    "export.unverified": (
        "Plain peft and transformers could not load the export again: {reason}",
        "Nothing was kept. The file worker.log of this export has the details.",
    ),
    "gguf.adapter": (
        "GGUF holds adapters of two matrices a layer, A and B, alone. This one has {part}.",
        "Export the whole model instead: “GGUF, for Ollama and llama.cpp”.",
    ),
    "gguf.apart": (
        "With these weights llama.cpp does not answer as transformers does. Cosine of their logits: {cosine:.5f} "
        "(needed: {least}). Answers that are the same: {same} of {count}.",
        _KEPT_NONE,
    ),
    "gguf.family": (
        "GGUF cannot be written for a model of the family {family}.",
        f"{_MERGED} Families that llama.cpp has: {{families}}.",
    ),
    "gguf.numbers": (
        "The weight {name} has values that are not numbers, or are too large for 32 bits.",
        "Choose an earlier checkpoint.",
    ),
    "gguf.part": ("A {family} model with {part} cannot be computed by llama.cpp.", _MERGED),
    "gguf.rows": (
        "The importance matrix needs rows of the run's data, and there are none: the file is gone, or has no others.",
        "Switch off “Importance matrix”, then export again.",
    ),
    "gguf.tokenizer": ("GGUF has no way to express this model's tokenizer, which has {found}.", _MERGED),
    "gguf.tokens": (
        "In {apart} of {texts} texts llama.cpp reads other tokens than transformers does. One of them: {text}",
        _KEPT_NONE,
    ),
    "metrics.busy": ("{title} already gets the metrics of {run_id}.", "There is nothing you need to do."),
    "metrics.missing": (
        "{title} is not installed beside Luthier.",
        "Set “Live metrics” to “nowhere else”, or run this in a terminal: .venv/bin/pip install {package}",
    ),
    "queue.gone": (
        "{run_id} no longer waits for the card: the queue has moved on.",
        "Look at the queue again.",
    ),
    "report.check/fault": ("The check “{name}” cannot be used: {reason}.", "Correct the check, then press Save."),
    "report.check/twice": ("Two checks are called “{name}”.", "Give one of them another name."),
    "report.busy": ("The report on {run_id} is being made already.", "Wait for it, or press Stop."),
    "report.general": ("There is no file of texts at {path}.", "Choose another file, or leave the field empty."),
    "report.count": ("Up to {most} runs can be set beside each other. Named: {count}.", "Choose fewer runs."),
    "report.none": ("There is no report on {run_id} yet.", "Open its report page and press “Make the report”."),
    "report.nothing": ("{run_id} has saved no checkpoint yet, so there is nothing to measure.", _SAVE),
    "report.request": ("{path}, which says what to measure, cannot be read.", "Make the report again."),
    "recipe.exists": ("There is a file {path} already.", "Choose another name for the new file."),
    "recipe.unknown": (
        "No program that Luthier knows recipes of ({known}) writes settings like those in {path}.",
        "Choose a recipe of one of these. If it is one, import it by the command line and name its program there.",
    ),
    "run.busy/delete": ("{run_id} is still at work, so it cannot be deleted.", "Stop it first."),
    "run.busy/file": ("{run_id} is still at work, so there is no file of it yet.", "Wait for its end, or stop it."),
    "run.busy/resume": ("{run_id} is still at work, so it cannot be resumed yet.", "Try again in a moment."),
    "run.busy/stop": ("{run_id} is still ending its work.", "Try again in a moment."),
    "run.busy/writer": ("Another process is at work on {name} already.", "Stop that run first."),
    "run.differs/checkpoint": (
        "Something is not as it was when {name} was saved: {others}.",
        "Put back what was there, or press “Resume anyway”.",
    ),
    "run.differs/rows": (
        "The rows are not those that this run began with: {others}.",
        "Put back the version that it began with, or press “Resume anyway”.",
    ),
    "run.file/damaged": ("{name} cannot be opened: {reason}.", "Ask for the file again."),
    "run.file/no_adapter": ("The run {run_id} has saved no adapter.", "Make the file without the adapter."),
    "run.file/none": (
        "{name} does not hold a run.",
        "Choose a file that was made with “Save as a file …” in History; its name ends in .luthier.zip.",
    ),
    "run.file/version": ("{name} was made by a newer version of Luthier.", "Update Luthier, then open the file."),
    "run.gone": "The run {run_id} is deleted for good: half a minute has passed.",
    "run.marks": (
        "There is room for a note of {note} characters, and for {tags} tags of {tag} characters each.",
        "Shorten the note or the tags.",
    ),
    "run.name": "The name has {count} characters, and there is room for {most}.",
    "run.no_checkpoint": (
        "{name} has saved no such checkpoint: {checkpoint}.",
        "Choose another checkpoint, or press “Save now” while the run trains.",
    ),
    "run.opened": (
        "The run {run_id} was opened from a file and cannot be {done}: its data stayed where it was made.",
        "Run its settings again with data of your own.",
    ),
    "ranks.no_start": (
        "The graphics cards of this run could not start to work together: {reason}.",
        f"Run it on one card, or press Resume to try again. {_DETAILS}",
    ),
    "ranks.no_answer": (
        "Machine {nodes} did not come to {where} within {seconds:.0f} seconds.",
        "Start its command as well, and let the port through its firewall. Then press Resume.",
    ),
    "ranks.no_answer/first": (
        "The first machine did not answer at {where} within {seconds:.0f} seconds: {reason}.",
        "Start its command, check the address, and let the port through its firewall.",
    ),
    "ranks.other_machine": (
        "Machine {node} cannot take part in this run: it has {others}.",
        "Give both machines the same Luthier, libraries and data file, then start again.",
    ),
    "ranks.other_machine/first": (
        "This machine cannot take part in the run: it has {others}.",
        "Give both machines the same Luthier, libraries and data file, then start again.",
    ),
    "ranks.port": (
        "Nothing can listen for other machines at {host}:{port}: {reason}.",
        "Choose this machine's own address and a free port.",
    ),
    "ranks.no_weights": (
        "Reading the model came to a halt: no layer arrived in the machine's memory for {minutes:.0f} minutes.",
        f"Look whether the disk with the model answers, then press Resume. {_DETAILS}",
    ),
    "ranks.rendezvous": (
        "Several machines need a place to meet, HOST:PORT, and a number of 2 or more; this was given: {given}.",
        "HOST is the first machine's address in your network, PORT any free one, such as 192.168.1.10:29500.",
    ),
    "ranks.no_data": (
        "This machine has no copy of the data at {path}.",
        "Copy the first machine's data file there.",
    ),
    "ranks.resume_from": (
        "A run on several machines cannot start from another run's adapter.",
        "Train it on one machine.",
    ),
    "ranks.other_rows": (
        "Another machine of this run has other rows in its data file.",
        "Copy the same file to every machine, then start again.",
    ),
    "run.resume_from/gone": (
        "The run {name}, from which this one starts, no longer has a checkpoint.",
        "Name another run in resume_from, or leave it empty.",
    ),
    "run.resume_from/labels": (
        "{name} was trained for other scores ({there}) than these rows have ({new}).",
        "Choose rows with the same labels, or leave resume_from empty for a new head.",
    ),
    "run.resume_from/none": (
        "There is no run called {resume_from} that has a checkpoint to start from.",
        "Name another run in resume_from, or leave it empty.",
    ),
    "run.resume_from/shape": (
        "The adapter of {name} has {others}, and the settings of this run ask for {new}.",
        "Set these as they are there or leave them out. For an adapter of another shape, leave resume_from empty.",
    ),
    "run.resume_from/task": (
        "{name} was trained for another task ({found}) than this run ({wanted}), so this run cannot start from it.",
        "Choose a run of the same kind, or leave resume_from empty. To go on from a language model with rows that have "
        "labels, choose the method SFT.",
    ),
    "run.state": (
        "{run_id} is {state} and cannot be {done}.",
        "This can be done only while a run is in one of these states: {allowed}.",
    ),
    "run.unknown/deleted": ("The run {name} was deleted.", "Choose another run on the History page."),
    "run.unknown/none": ("There is no run called {run_id}.", "The History page lists all runs."),
    "run.unreadable": ("The run {name} cannot be read: {reason}.", "Repair its folder, or delete the run."),
    "run.unreadable/listed": ("This run cannot be read: {reason}.", "Repair its folder, or delete the run."),
    "supervisor.failed": ("Luthier could not keep this run going: {reason}", f"Press Resume. {_DETAILS}"),
    "train.not_finite/again": (
        "Training broke down again, at half the learning rate ({rate}): {what} {steps}.",
        "Lower “Learning rate”, and look at the rows that the log names. In place of float16, try bfloat16 or float32 "
        "under “Precision (dtype)”.",
    ),
    "train.not_finite/repeatedly": (
        "Training broke down: {what}, {count} steps in a row (steps {first} to {last}).",
        "Lower “Learning rate”, and look at the rows that the log names. In place of float16, try bfloat16 or float32 "
        "under “Precision (dtype)”.",
    ),
    "train.nothing_trained": (
        "In step {step} there is no token to learn{rows}.",
        "Leave these rows out, or choose a longer “Max length”.",
    ),
    "worker.died/exit_code": (
        "The process that did the work ended before it had finished (exit code {exit_code}).",
        f"{{again}} {_DETAILS}",
    ),
    "worker.died/killed": ("The process that did the work was killed {why}.", "{again}"),
    "worker.died/killed_for_memory": (
        "The process that did the work was killed {why}.",
        "Close other programs, or choose a smaller “Micro-batch size”. {again}",
    ),
    "worker.died/refused_memory": (
        "Memory ran out, and the process that did the work ended.",
        "Close other programs, or choose a smaller model. {again}",
    ),
    "worker.died/signal": (
        "The process that did the work was ended by signal {number} ({name}).",
        f"{{again}} {_DETAILS}",
    ),
    "worker.died/unseen": (
        "The process that did the work ended before it had finished, and its exit code is unknown.",
        f"{{again}} {_DETAILS}",
    ),
    "worker.fault": (
        "An unforeseen error stopped the work. {kind}: {reason}",
        f"Start or resume it once more. {_DETAILS}",
    ),
    "worker.restarts/asked": (
        "The run had to start afresh {count} times and did not get beyond step {step}.",
        f"Press Resume. {_DETAILS}",
    ),
    "worker.restarts/card": (
        "The graphics card failed {count} times, and the run did not get beyond step {step}.",
        f"Press Resume. {_DETAILS}",
    ),
    "worker.slept": (
        "The machine slept for {minutes:,.0f} min, and the run did not survive it: {count} times, without getting "
        "beyond step {step}.",
        f"Press Resume, and keep the machine awake. {_DETAILS}",
    ),
    "worker.stalled": (
        "{what}, and starting afresh did not help: {count} times, without getting beyond step {step}.",
        f"Press Resume. {_DETAILS}",
    ),
}
