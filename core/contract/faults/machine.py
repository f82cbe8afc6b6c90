"""What is said of the machine: disk, folder, card, memory: message and hint by key."""

MACHINE = {
    "card.busy/held": (
        "Expected a free {word}, found it held by {other}.",
        "Ask through that run while it trains, or ask again when it has ended.",
    ),
    "card.busy/run_waits": ("A run waits for the card, so {who} left it.", "Ask when it has ended."),
    "card.gone": (
        "The card did not answer for {minutes:.0f} min: interrupted, goes on from step {step}.",
        "Resume when nvidia-smi shows the card again.",
    ),
    "card.missing": (
        "Cards are numbered {known}; {name} is not there.",
        "Choose cards that are there (--cards, train.cards); nvidia-smi lists them.",
    ),
    "disk.full/checkpoint": (
        "Expected {need:,.0f} MB free for a checkpoint, found {free:,.0f} MB.",
        "Make room on this disk, then resume; the last good checkpoint stands.",
    ),
    "disk.full/job": ("The disk is full: {reason}.", "Make room on this disk, then ask for it again."),
    "disk.full/download": (
        "The disk filled up while {name} was fetched.",
        "Free some space; it goes on where it stood.",
    ),
    "disk.full/reading": (
        "Expected room on the disk to read the data, found: {reason}.",
        "Free some disk space, or move Luthier's folder with --home.",
    ),
    "disk.full/run": (
        "The disk is full: {reason}.",
        "Make room on this disk, then resume; the last good checkpoint stands.",
    ),
    "disk.full/upload": ("The disk is full.", "Make room, or move the root folder: --home DIR."),
    "disk.full/upload_room": (
        "Expected {wanted:.1f} GB of room at {home}, found {free:.1f} GB.",
        "Make room, or move the root folder: --home DIR.",
    ),
    "disk.room": (
        "Expected {needed:.1f} GB of free disk for this export, found {free:.1f}.",
        "Make room, then export again.",
    ),
    "disk.small": (
        "Expected {needed:.1f} GB free for {name} in {folder}, found {free:.1f} GB.",
        "Free some space, or set HF_HOME to a folder on a larger disk.",
    ),
    "disk.write/file": ("Could not write {name} ({reason}).", "{cure}"),
    "disk.write/run_folder": ("Could not make the folder {path} ({reason}).", "{cure}"),
    "disk.write/start": ("Could not start a run in {folder} ({reason}).", "{cure}"),
    "disk.write/start_adapter": ("Could not keep the adapter of run {name} ({reason}).", "{cure}"),
    "disk.write/upload": ("Expected to write the file to {home}, found: {reason}.", "{cure}"),
    "gpu.unusable": (
        "Expected PyTorch {version} to use the {gpu}, found that it cannot (driver {driver}).",
        "Update the NVIDIA driver, or choose a PyTorch for it: python3 launcher.py --torch cu126 (or cpu).",
    ),
    "home.missing": (
        "Expected a folder with runs at {home}, found no such folder.",
        "Check {where}: nothing is made by looking.",
    ),
    "home.open": (
        "Expected a folder for runs and data that only you may write to, found one that everybody may: {home}.",
        "Choose another, such as --home {proposed}; or: chmod o-w {home}",
    ),
    "home.repository": (
        "Expected a folder for runs and data, found Luthier's own program folder: {root}.",
        "Choose another: --home ~/luthier-studio",
    ),
    "machine.process": ("Could not start a process for {name} ({reason}).", "Close other programs, then {then}."),
    "memory.gpu/job": ("The card's memory is full.", "Close what else uses the card, then ask for it again."),
    "memory.gpu/run": (
        "The card's memory is full.",
        "Choose fewer tokens a pass, shorter examples, a smaller model, or recomputed activations; then resume.",
    ),
    "memory.host/job": (
        "The machine's own memory is full: {free:.1f} of {total:.1f} GB are free now.",
        "Close what else runs here; then ask for it again{wsl}.",
    ),
    "memory.host/run": (
        "The machine's own memory is full: {free:.1f} of {total:.1f} GB are free now.",
        "Close what else runs here, or choose shorter examples or a smaller model; then resume{wsl}.",
    ),
    "memory.gpu": ("The card's memory ran out while answering.", "Ask for a shorter answer."),
    "memory.streamed": (
        "Expected {needed:.1f} GB of the machine's own memory for {layers} streamed layers, found {free:.1f} GB.",
        "Close other programs, stream up to {fit} layers, or choose 4-bit weights or a smaller model.",
    ),
    "memory.streamed/each": (
        "Expected {needed:.1f} GB of the machine's own memory for {count} copies of {layers} streamed layers (this "
        "system has no memory that processes share), found {free:.1f} GB.",
        "Train on fewer cards (--cards 0), close other programs, or stream up to {fit} layers.",
    ),
    "memory.inputs": (
        "Expected {needed:.1f} GB of the machine's own memory for the layer inputs of {tokens:,} tokens, found "
        "{free:.1f} GB.",
        "Close other programs, or choose a smaller max_length.",
    ),
    "memory.optimizer": (
        "Expected room for the optimiser's numbers, found the {memory} full.",
        "Close what else uses it, or choose adamw_8bit or a smaller rank; then resume.",
    ),
    "memory.row": (
        "Expected room for one row of {tokens:,} tokens{kept}, found the {memory} full.",
        "Close what else uses it, or choose a shorter 'Max length', a smaller rank or model.",
    ),
    "port.taken": (
        "Expected port {last} on {address} to be free, found: {reason}.",
        "Choose another: --port {next_port}",
    ),
    "words.bytes": ("Expected words in UTF-8, found other bytes: {word}", "Rename that file, or set LC_ALL=C.UTF-8."),
}
