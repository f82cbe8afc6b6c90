"""What is said of a run: its settings, its folder, its training, what it is exported to: message and hint by key."""

RUNS = {
    "checkpoint.adapter": (
        "Expected this run's adapter in {name}, found {key}.",
        "Start a new run; this checkpoint belongs to another.",
    ),
    "checkpoint.damaged": ("Expected a whole {name}, found: {problem}.", "Export another checkpoint."),
    "checkpoint.optimizer": (
        "Expected an optimiser over flat parameters in {name}, found one of an earlier version.",
        "Start a new run with resume_from: it takes the adapter, with a fresh optimiser.",
    ),
    "checkpoint.unreadable": ("{name} was written and does not read back: {problem}.", "Check this disk."),
    "compare.count": ("Expected two to {most} runs to compare, found {count}.", "Choose them in the history."),
    "config.faults/before_start": ("This run cannot start:", ""),
    "config.faults/file": ("{name} has {count}:", ""),
    "config.faults/form": ("{count} setting(s) cannot be used:", ""),
    "config.faults/run": ("This run has {count} fault(s):", ""),
    "config.method": (
        "Expected {wants} for method {method}, found {layout} rows in {name}.",
        "Choose method {default} or auto, or a file that has them.",
    ),
    "config.preset/faults": ("Preset {preset!r} has faults:", ""),
    "config.preset/flat_key": ("Expected dotted keys in preset {preset!r}, found {key!r}.", ""),
    "config.preset/no_fields": ("Expected fields in {name}, found {kind}.", ""),
    "config.preset/no_model": ("Expected a model of the catalogue, found {key!r}.", "See presets/models."),
    "config.preset/unknown": ("Expected a preset out of {known}; found {key!r}.", "Choose one of these."),
    "config.unreadable": ("Expected a run file at {path}, found {reason}.", ""),
    "config.yaml/no_fields": ("Expected fields in {path}, found {kind}.", "See README, run.yaml."),
    "config.yaml/syntax": ("{path} is not YAML: {reason}.", "Mend that line."),
    "export.dtype": (
        "Expected numbers that PyTorch can read in the model's files, found {name} held as {dtype}.",
        "Download the model in 16-bit safetensors.",
    ),
    "export.exists": ("An export named {name} stands already.", "Choose another name."),
    "export.form": (
        "A run that trained {words} can be exported as {forms}; found {form}.",
        "Choose one of these.",
    ),
    "export.llama": (
        "Expected llama.cpp to read what was written, found: {reason}",
        "Nothing was kept; worker.log has the details. Export the merged weights instead.",
    ),
    "export.mismatch": (
        "Expected {name} of shape {shape} in the base model's files, found {found}.",
        "Merge with the base model that the adapter was trained on, or export the adapter.",
    ),
    "export.base": (
        "Expected the base model that this run was trained on ({then}), found another one in its place ({now}).",
        "Put back the one that it was trained on: added to another one, the adapter is noise.",
    ),
    "export.base/gone": (
        "Expected {title} at revision {revision} on this machine, which this run was trained on, found it gone.",
        "Download that revision again, then export.",
    ),
    "export.base/no_folder": (
        "Expected the base model that this run was trained on in {folder}, found it gone.",
        "Put it back there, then export.",
    ),
    "export.name": (
        "Expected a name that Windows takes too, found {name}: {reason}.",
        "Choose another name.",
    ),
    "export.needs": ("Expected {missing} on this machine to write {form}, found it missing.", "Install it: {command}"),
    "export.nothing": ("Expected a checkpoint in {run_id}, found none.", "Let the run save one first."),
    "export.package": (
        "Expected the package {package}, which makes this form, found none.",
        "Install it: {python} -m pip install {package}",
    ),
    "export.request/file": (
        "Expected an export request in {path}, found none that can be read.",
        "Ask for the export again.",
    ),
    "export.request/option": ("Expected {expected} for --{option}, found {value!r}.", ""),
    "export.script": (
        "Expected a run that plain transformers, peft and TRL can train again, found {what}.",
        "Take home its weights, or train with another setting.",
    ),
    "export.rows": (
        "Expected an export without rows of the data, found a {form}, which holds them.",
        "Take the weights: rows are sent nowhere.",
    ),
    "export.unfinished": ("Expected a finished export {name} of {run_id}, found none.", "Export it first."),
    "export.unknown": ("Expected an export of {run_id}, found none called {name!r}.", ""),
    "export.unknown_part": (
        "Expected LoRA weights in the adapter, found {name}, which cannot be merged.",
        "Export the adapter instead.",
    ),
    "export.request/unread": (
        "Expected for the form {form} only options that it reads ({reads}), found --{option}.",
        "Leave it out, or choose another form.",
    ),
    "export.weights": (
        "Expected a run over weights in 4 bits for weights trained_on, found one over {words}.",
        "Take the original weights: it was trained on these.",
    ),
    "export.unverified": (
        "Expected plain peft and transformers to reload it, found: {reason}",
        "Nothing was kept; worker.log has the details.",
    ),
    "gguf.adapter": (
        "Expected an adapter of matrices A and B alone, which GGUF can hold, found {part}.",
        "Export the whole model as GGUF instead.",
    ),
    "gguf.apart": (
        "Expected llama.cpp to answer as transformers does on these weights, found logits with cosine {cosine:.5f} "
        "(at least {least}) and {same} of {count} greedy answers alike.",
        "Nothing was kept. Export the merged weights instead.",
    ),
    "gguf.family": (
        "Expected a family that llama.cpp has ({families}), found {family}.",
        "Export the merged weights instead.",
    ),
    "gguf.numbers": (
        "Expected numbers in {name}, found values that are none, or beyond what 32 bits hold.",
        "Choose an earlier checkpoint.",
    ),
    "gguf.part": (
        "Expected a {family} model as llama.cpp computes it, found {part}.",
        "Export the merged weights instead.",
    ),
    "gguf.rows": (
        "Expected rows of the run's data for the importance matrix, found none: its file is gone or holds no others.",
        "Export without an importance matrix.",
    ),
    "gguf.tokenizer": (
        "Expected a tokenizer that GGUF can express, found {found}.",
        "Export the merged weights instead.",
    ),
    "gguf.tokens": (
        "Expected llama.cpp to read texts as transformers does, found other tokens in {apart} of {texts}: {text}",
        "Nothing was kept. Export the merged weights instead.",
    ),
    "metrics.busy": ("{title} is already told of {run_id}.", "Nothing is to be done."),
    "metrics.missing": (
        "Expected {title} beside this program, found none.",
        "Install it: .venv/bin/pip install {package}",
    ),
    "queue.gone": (
        "{run_id} does not wait for the card; expected one that does.",
        "The queue has moved on: look at it again.",
    ),
    "report.check/fault": ("The check {name!r} cannot be used: {reason}.", "Mend it."),
    "report.check/twice": ("Expected each check to have a name of its own, found {name!r} twice.", "Rename one."),
    "report.busy": ("The report on {run_id} is being made already.", "Wait for it, or stop it."),
    "report.general": ("Expected a file of texts at {path}, found none.", "Choose another, or none."),
    "report.count": ("Expected at most {most} runs beside each other, found {count}.", "Name fewer."),
    "report.none": ("Expected a report on {run_id}, found none.", "Make one:   {command}"),
    "report.nothing": ("Expected a checkpoint in {run_id}, found none.", "Let the run save one first."),
    "report.request": ("Expected a report's request in {path}, found none that can be read.", "Ask for it again."),
    "recipe.exists": ("A file {path} stands already.", "Choose another one with --out."),
    "recipe.unknown": (
        "Expected a recipe of {known}, found none of their keys in {path}.",
        "A run.yaml of Luthier's needs no import; else name the program with --as.",
    ),
    "run.busy/delete": ("{run_id} is at work and cannot be deleted.", "Stop it first."),
    "run.busy/file": ("{run_id} is at work and cannot be written into a file.", "Wait for its end, or stop it."),
    "run.busy/resume": ("{run_id} is still at work.", "Try again in a moment."),
    "run.busy/stop": ("{run_id} is still leaving.", "Try again in a moment."),
    "run.busy/writer": ("{name} is being worked on already.", "Stop that run first."),
    "run.differs/checkpoint": (
        "Expected what {name} was trained with, found {others}.",
        "Put back what was there, or go on all the same: resume {run} --anyway.",
    ),
    "run.differs/rows": (
        "Expected the rows that this run began with, found {others}.",
        "Put back the version that it began with, or go on all the same: resume {run} --anyway.",
    ),
    "run.file/damaged": ("{name} cannot be opened: {reason}.", "Ask for the file again."),
    "run.file/no_adapter": (
        "Expected a checkpoint with an adapter in {run_id}, found none.",
        "Write the file without the adapter.",
    ),
    "run.file/none": ("Expected a run's file (.luthier.zip), found another one: {name}.", ""),
    "run.file/version": ("{name} was written by a newer version of this program.", "Update it, then open the file."),
    "run.gone": ("Expected {run_id} among the deleted runs, found it deleted for good.", ""),
    "run.marks": (
        "Expected a note of at most {note} characters and at most {tags} tags of at most {tag} characters, found more.",
        "Shorten it.",
    ),
    "run.name": ("Expected a name of at most {most} characters, found {count}.", "Shorten it."),
    "run.no_checkpoint": ("Expected a checkpoint ({checkpoint}) in {name}, found none.", "Save first."),
    "run.opened": (
        "{run_id} was opened from a file and cannot be {done}: its data stayed where it was made.",
        "Run its settings again with data of your own.",
    ),
    "ranks.no_start": (
        "The processes of this run could not start to work together: {reason}.",
        "See worker.log; or train on one card (--cards 0, train.cards).",
    ),
    "ranks.no_answer": (
        "Machine {nodes} did not come to {where} within {seconds:.0f} s.",
        "Start its command too (the same --nodes and --rendezvous, its own --node-rank), and let the port through.",
    ),
    "ranks.no_answer/first": (
        "The first machine did not answer at {where} within {seconds:.0f} s: {reason}.",
        "Start its command (--node-rank 0), check the address, and let the port through its firewall.",
    ),
    "ranks.other_machine": (
        "Machine {node} cannot join this run: it has {others}.",
        "Give both machines the same Luthier, libraries and data file, then start again.",
    ),
    "ranks.other_machine/first": (
        "This machine cannot join the run: it has {others}.",
        "Give both machines the same Luthier, libraries and data file, then start again.",
    ),
    "ranks.port": (
        "Expected to listen for other machines at {host}:{port}, found: {reason}.",
        "Give this machine's own address and a free port: --rendezvous HOST:PORT.",
    ),
    "ranks.no_weights": (
        "The process that reads the streamed layers for all cards gave none for {minutes:.0f} min.",
        "Look at the disk with the model, and at worker.log; then resume.",
    ),
    "ranks.rendezvous": (
        "Expected --nodes of 2 or more and --rendezvous HOST:PORT, found {given}.",
        "HOST is the first machine's address in your network, PORT any free one, such as 192.168.1.10:29500.",
    ),
    "ranks.no_data": (
        "Expected this machine's own copy of the data at {path}, found none.",
        "Copy the first machine's data file there, or name it in run.yaml (data.path).",
    ),
    "ranks.resume_from": (
        "A run on several machines cannot start from another run's adapter.",
        "Train it on one machine (without --nodes).",
    ),
    "ranks.other_rows": (
        "Expected the rows that rank 0 trains on, found others on another rank.",
        "Give every machine the same data file, and start again.",
    ),
    "run.resume_from/gone": (
        "Expected a checkpoint of run {name} to start from, found none.",
        "Choose a run that has one, or leave resume_from empty.",
    ),
    "run.resume_from/labels": (
        "Expected the scores of {name} ({there}), found {new}.",
        "Give rows with the same labels, or leave resume_from empty for a new head.",
    ),
    "run.resume_from/none": (
        "Expected a run with a checkpoint to start from, found none called {resume_from!r}.",
        "Choose a run that has one, or leave resume_from empty.",
    ),
    "run.resume_from/shape": (
        "Expected the adapter of {name} as it is ({others}), found {new}.",
        "Leave these fields out or set them so; or leave resume_from empty for an adapter of another shape.",
    ),
    "run.resume_from/task": (
        "Expected a run for {wanted} to start from, found {name}, which is for {found}.",
        "Choose a run of the same kind, or leave resume_from empty; to go on from a language model with rows that have "
        "labels, choose the method SFT.",
    ),
    "run.state": ("{run_id} is {state} and cannot be {done}; expected one that is {allowed}.", ""),
    "run.unknown/deleted": ("Expected the run {name}, found it deleted.", ""),
    "run.unknown/none": ("Expected a run, found none called {run_id!r}.", "'runs' lists them."),
    "run.unreadable": ("{name} cannot be read: {reason}.", "Mend its folder, or delete the run."),
    "run.unreadable/listed": ("This run cannot be read: {reason}.", "Mend its folder, or delete the run."),
    "supervisor.failed": ("{reason}", "See worker.log in the run's folder, then resume."),
    "train.not_finite/again": (
        "Expected a finite loss with half the learning rate ({rate}), found {what} {steps} again.",
        "Lower the learning rate and look at the rows that were named; with float16, try bfloat16 or float32.",
    ),
    "train.not_finite/repeatedly": (
        "Expected a finite loss, found {what} {count} steps in a row (steps {first} to {last}).",
        "Lower the learning rate and look at the rows that were named; with float16, try bfloat16 or float32.",
    ),
    "train.nothing_trained": (
        "Expected tokens to train on in step {step}, found none{rows}.",
        "Leave these rows out, or choose a longer 'Max length'.",
    ),
    "worker.died/exit_code": (
        "The worker ended with exit code {exit_code} before it had finished.",
        "See worker.log in the run's folder. {again}",
    ),
    "worker.died/killed": ("The worker was killed (signal 9) {why}.", "{again}"),
    "worker.died/killed_for_memory": (
        "The worker was killed (signal 9) {why}.",
        "Close other programs or choose fewer tokens a pass. {again}",
    ),
    "worker.died/refused_memory": (
        "The worker ended (signal 6) because memory ran out.",
        "Close other programs or choose a smaller model. {again}",
    ),
    "worker.died/signal": (
        "The worker was ended by signal {number} ({name}).",
        "{again} worker.log has its words.",
    ),
    "worker.died/unseen": (
        "The worker ended without an exit code that we could see before it had finished.",
        "See worker.log in the run's folder. {again}",
    ),
    "worker.fault": (
        "The worker stopped on an unexpected fault: {kind}: {reason}",
        "worker.log in the run's folder has the details.",
    ),
    "worker.restarts/asked": (
        "The worker needed a fresh process again and again: {count} times without getting beyond step {step}.",
        "See worker.log in the run's folder, then resume.",
    ),
    "worker.restarts/card": (
        "The card faulted again and again: {count} times without getting beyond step {step}.",
        "See worker.log in the run's folder, then resume.",
    ),
    "worker.slept": (
        "The machine slept for {minutes:,.0f} min and the worker did not survive it: {count} times without getting "
        "beyond step {step}.",
        "See worker.log in the run's folder, then resume.",
    ),
    "worker.stalled": (
        "{what}, and a fresh worker did not get further: {count} times without getting beyond step {step}.",
        "See worker.log in the run's folder, then resume.",
    ),
}
