"""What pages say where the faults of ``core.contract.faults.machine`` come up."""

from studio.words.faults.kinds import Words

MACHINE: dict[str, Words] = {
    # the graphics card
    "card.busy/held": (
        "The {word} is in use by {other}.",
        "Ask again when it has ended. If it is a run, open that run under Try it: it answers while it trains.",
    ),
    "card.busy/run_waits": (
        "A run waits for the graphics card, so {who} gave it up.",
        "Ask again when it has ended.",
    ),
    "card.gone": (
        "The graphics card did not answer for {minutes:.0f} minutes, so the run was interrupted. It will go on from "
        "step {step}.",
        "Once the card is back (nvidia-smi in a terminal shows it), press Resume.",
    ),
    "card.missing": (
        "This machine's graphics cards are numbered {known}, and {name} is not among them.",
        "Choose other cards; nvidia-smi in a terminal lists those that are there.",
    ),
    "gpu.unusable": (
        "PyTorch {version} cannot use the {gpu} with its driver (version {driver}).",
        "Update the NVIDIA driver, or start Luthier with a PyTorch that suits it: python3 launcher.py --torch cu126 "
        "(or cpu).",
    ),
    # memory
    "memory.gpu": ("The graphics card ran out of memory while it was answering.", "Ask for a shorter answer."),
    "memory.gpu/job": (
        "The memory of the graphics card is full.",
        "Close other programs that use the card, then try again.",
    ),
    "memory.gpu/run": (
        "The memory of the graphics card is full.",
        "Run it again with a smaller “Micro-batch size”, a shorter “Max length”, a smaller model, or “Gradient "
        "checkpointing” in every layer. Or close other programs that use the card, and press Resume.",
    ),
    "memory.host/job": (
        "The memory of this machine is full: {free:.1f} of {total:.1f} GB are free now.",
        "Close other programs, then try again{wsl}.",
    ),
    "memory.host/run": (
        "The memory of this machine is full: {free:.1f} of {total:.1f} GB are free now.",
        "Close other programs and press Resume, or run it again with a shorter “Max length” or a smaller model{wsl}.",
    ),
    "memory.streamed": (
        "{layers} layers were to be streamed from the memory of this machine. They need {needed:.1f} GB of it, and "
        "{free:.1f} GB are free.",
        "Close other programs, set “Streamed layers” to at most {fit}, or choose a smaller model.",
    ),
    "memory.streamed/each": (
        "{layers} layers were to be streamed from the memory of this machine. On this system each of {count} cards "
        "needs its own copy of them, {needed:.1f} GB in all, and {free:.1f} GB are free.",
        "Choose fewer cards, close other programs, or set “Streamed layers” to at most {fit}.",
    ),
    "memory.inputs": (
        "{tokens:,} tokens at once keep {needed:.1f} GB in the memory of this machine, and {free:.1f} GB are free.",
        "Close other programs, or choose a smaller “Max length”.",
    ),
    "memory.optimizer": (
        "The {memory} is full: there was no room left to take a step of learning.",
        "Close other programs that use it. Or run again with “Optimizer” AdamW in 8 bits or a smaller “Rank (r)”.",
    ),
    "memory.row": (
        "The {memory} is full: even a single row of {tokens:,} tokens does not fit.",
        "Close other programs that use it, or run it again with a shorter “Max length”, a smaller “Rank (r)” or a "
        "smaller model.",
    ),
    # room on the disk
    "disk.full/checkpoint": (
        "There is no room on the disk for a checkpoint: it takes {need:,.0f} MB, and {free:,.0f} MB are free.",
        "Make room on this disk, then press Resume: the last checkpoint is whole.",
    ),
    "disk.full/download": (
        "The disk filled up while {name} was downloaded.",
        "Free some space, then start again: the download goes on where it stood.",
    ),
    "disk.full/job": ("The disk is full.", "Make room on this disk, then try again."),
    "disk.full/reading": (
        "There is no room left on the disk to read the data.",
        "Free some disk space and try again, or start Luthier with a folder on a larger disk (option --home).",
    ),
    "disk.full/run": (
        "The disk is full, so the run could not go on.",
        "Make room on this disk, then press Resume: the last checkpoint is whole.",
    ),
    "disk.full/upload": (
        "The disk is full, so the file could not be copied here.",
        "Make room, for example by deleting runs in the history; or start Luthier with a folder on a larger disk "
        "(option --home).",
    ),
    "disk.full/upload_room": (
        "There is no room on the disk for this file: it takes {wanted:.1f} GB, and {free:.1f} GB can be used at "
        "{home}.",
        "Make room, for example by deleting runs in the history; or start Luthier with a folder on a larger disk "
        "(option --home).",
    ),
    "disk.room": (
        "There is no room on the disk for this export: it takes {needed:.1f} GB, and {free:.1f} GB are free.",
        "Make room, then export again.",
    ),
    "disk.small": (
        "There is no room on the disk for {name}: it takes {needed:.1f} GB, and {free:.1f} GB are free in {folder}.",
        "Free some space, or choose a smaller model; or set HF_HOME to a folder on a larger disk and start Luthier "
        "again.",
    ),
    # files and folders
    "disk.write/file": ("Luthier could not write the file {name}: {reason}.", "{cure}"),
    "disk.write/run_folder": ("Luthier could not make the folder {path}: {reason}.", "{cure}"),
    "disk.write/start": ("The run could not be started in {folder}: {reason}.", "{cure}"),
    "disk.write/start_adapter": ("The adapter of run {name} could not be copied to start from it: {reason}.", "{cure}"),
    "disk.write/upload": ("The file could not be copied to {home}: {reason}.", "{cure}"),
    "home.missing": (
        "There is no folder {home}, so there are no runs to look at.",
        "Check {where}. A folder is made when a run is, not by looking.",
    ),
    "home.open": (
        "Everybody on this machine may write to {home}, so it is no safe place for your runs and data.",
        "Start Luthier with another folder, such as --home {proposed}. Or take that right away: chmod o-w {home}",
    ),
    "home.repository": (
        "{root} holds the program Luthier itself, so runs and data cannot be kept there.",
        "Start Luthier with another folder: --home ~/luthier-studio",
    ),
    # starting
    "machine.process": (
        "The system could not start a process for {name}: {reason}.",
        "Close other programs, then {then}.",
    ),
    "port.taken": (
        "Luthier cannot open its page at port {last} of {address}: {reason}.",
        "Start it with another port: --port {next_port}",
    ),
    "words.bytes": (
        "This name is not written in UTF-8, so it cannot be read: {word}",
        "Rename that file, or start Luthier with LC_ALL=C.UTF-8.",
    ),
}
