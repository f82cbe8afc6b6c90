"""What pages say where the faults of ``core.contract.faults.models`` come up."""

from studio.words.faults.kinds import Words

_WHOLE = "The model is not complete. Finish the download, or copy the missing files into the folder."
_AGAIN = "The file may be damaged. Download the model again."

MODELS: dict[str, Words] = {
    "model.absurd/config": "At most {most:,} is allowed for {key}, but {name} says {shown}.",
    "model.absurd/memory": "Reading the settings and the tokenizer of {name} took more than {megabytes:,} MB of "
    "memory, far more than a sound model needs.",
    "model.absurd/tokenizer": "The tokenizer in {path} goes beyond what Luthier allows: {expected}. It has {found}.",
    "model.adapter/config_beside": (
        "{folder} holds a whole model, but the settings of an adapter lie beside it and name another base model.",
        "Move adapter_config.json out of the folder, then press “Look again”.",
    ),
    "model.adapter/files": "A LoRA adapter has two files, {config} and {weights}; not both are in {folder}.",
    "model.adapter/no_base": (
        "{folder} holds an adapter, but not the model that it belongs to.",
        "Choose its base model. To train the adapter on, start from the run that made it (resume_from).",
    ),
    "model.adapter/none": (
        "No LoRA adapter can be read in {folder}.",
        "Check that the folder is there and that you may open its files.",
    ),
    "model.adapter/not_plain": (
        "The adapter in {folder} has a setting that Luthier does not use: {key} is {shown}.",
        "Choose an adapter that was made with Luthier.",
    ),
    "model.adapter/other_model": (
        "The adapter in {folder} does not fit this model: {reason}",
        "Use it with the base model that it was trained on.",
    ),
    "model.adapter/rank": (
        "The settings in {folder} say rank {rank}, but the adapter's weights have rank {held}.",
        "The two files come from different adapters. Copy both again from the same place.",
    ),
    "model.bad_file": (
        "{path} should be {kind} and holds something else, which may be code.",
        "Luthier never opens files that can run code. Download this file again.",
    ),
    "model.bad_index/elsewhere": (
        "{index} says that the weight {name} is in {file}, but it is not there.",
        "Download the model again.",
    ),
    "model.bad_index/no_map": (
        "{index} should list which file holds which weights (weight_map), but has no such list.",
        "Download this file again.",
    ),
    "model.bad_index/twice": ("Two files in {folder} hold the same weight, {twice}.", "Download the model again."),
    "model.bad_json": ("{path} is not a readable JSON file: {reason}.", "Download this file again."),
    "model.bad_weights/headers": (
        "The weight files in {folder} begin with over 64 MB of headers, far more than a sound model has.",
        "Choose another model.",
    ),
    "model.bad_weights/length": ("The weight {name} has {size} bytes in its file and should have {expected}.", _AGAIN),
    "model.bad_weights/not_safetensors": (
        "{path} is not a readable safetensors file: {reason}.",
        "Download this file again.",
    ),
    "model.encoder_whole": (
        "{title} is an encoder, and an encoder is trained as a whole. “What learns” is set to {learns}.",
        "Set “What learns” to “everything (full finetuning)”, or choose a language model.",
    ),
    "model.experts": (
        "{name} is a mixture of experts, which Luthier cannot train.",
        "Choose a dense model: one without experts.",
    ),
    "model.files": (
        "{folder} holds more than {most:,} files, far more than a model has.",
        "Choose the folder that holds the model alone.",
    ),
    "model.incomplete": (
        "The model in {folder} is not complete. Weights that are missing: {count}, the first is {missing}.",
        "Download the model again. If they are still missing, its architecture is another one: choose another model.",
    ),
    "model.large_file": (
        "{path} has {size:,.0f} MB. A file of its kind needs at most {limit} MB.",
        "Choose another model.",
    ),
    "model.load": (
        "The model in {folder} could not be loaded: {reason}",
        "Choose another model, or download this one again. It must be a language model in safetensors.",
    ),
    "model.original": (
        "LoftQ needs the 16-bit weights that the 4-bit ones were made of, and cannot use them: {reason}.",
        "Set “Adapter start (init)” to “at no change”, or download the 16-bit model.",
    ),
    "model.memory": (
        "The GPU memory ran out while {name} was being loaded.",
        "Close other programs that use the card, set “Quantization” to “4 bits (NF4)”, or choose a smaller model.",
    ),
    "model.unstreamable": (
        "The layers of {name} cannot be streamed from the machine's memory: {reason}",
        "Set “Streamed layers” to 0, or choose another model.",
    ),
    "model.misfit": (
        "The settings of {name} promise {expected}, but its weight files have {found}.",
        "The files come from two models, or the download is damaged. Download the model again.",
    ),
    "model.missing_shard/listed": (
        "{there} of {count} weight files are in {folder}. Missing: {missing}{more}.",
        _WHOLE,
    ),
    "model.missing_shard/no_index": (
        "{count} of {expected} weight files are in {folder}, and {index}, the list of what they hold, is missing.",
        _WHOLE,
    ),
    "model.no_file": ("{path} is not a regular file.", "Remove it, or put the model's own file in its place."),
    "model.no_folder": (
        "There is no model in {folder}: a model's folder holds a config.json.",
        "Check the path. It must lead to the folder itself.",
    ),
    "model.no_labels": (
        "The names of the labels in {folder} are missing or cannot be read.",
        "Choose another checkpoint, or train again.",
    ),
    "model.no_scores": "Models of the type {kind} cannot give scores: transformers has no class for it.",
    "model.rope": (
        "The positions of {title} cannot be scaled: {reason}.",
        "Set “RoPE scaling” to “choose for me” and “RoPE base (theta)” to 0, or choose another model.",
    ),
    "model.no_tokenizer": (
        "The model in {folder} has no tokenizer ({file}).",
        "Copy the model's tokenizer files into this folder.",
    ),
    "model.no_type": (
        "{name} does not say what type of model it is (model_type in its config.json).",
        "Download the model again, or choose another one.",
    ),
    "model.no_weights": (
        "There are no weights in {folder}: no safetensors file.",
        "Choose a folder with the model's safetensors files, or download the model again.",
    ),
    "model.not_causal": "{name} is not a language model that continues text. It is: {classes}.",
    "model.not_encoder": (
        "{name} is an encoder of a kind that Luthier cannot train: {classes}.",
        "Choose one that fills in or sorts texts (ForMaskedLM or ForSequenceClassification).",
    ),
    "model.not_here/chat": (
        "{title} is no longer on this machine.",
        "Download it again, then ask again. Starting a run with it downloads it.",
    ),
    "model.not_here/report": (
        "{title} is no longer on this machine.",
        "Download it again, then make the report. Starting a run with it downloads it.",
    ),
    "model.not_here/export": (
        "{title} is no longer on this machine.",
        "Download it again, then press Export. Starting a run with it downloads it.",
    ),
    "model.not_safetensors": (
        "The weights in {folder} are in another format than safetensors: {found}.",
        "Only safetensors are loaded: other formats can run code, or are made for other programs. Choose a model that "
        "has them.",
    ),
    "model.outside/index": (
        "{index} names a file that is not in the model's folder: {name}.",
        "Luthier opens only the model's own files. Choose another model.",
    ),
    "model.outside/init_inputs": "The tokenizer's settings ask for objects to be built (init_inputs in {name}), which "
    "Luthier never does.",
    "model.outside/link": (
        "{name} in {folder} is a link to another place: {target}.",
        "Replace the link with a copy of the file.",
    ),
    "model.outside/templates": "A chat template in {name} has a name that is not allowed: {shown}.",
    "model.outside/tokenizer": "A file outside of the model's folder is named by {key} in {name}.",
    "model.outside/weights": "Other weight files than the model's usual ones are named in {name} "
    "(transformers_weights).",
    "model.quantised": (
        "The weights of {name} are quantized already ({found}). Luthier needs them in 16 or 32 bits.",
        "Choose the original model: Luthier makes 4 bits of it while loading.",
    ),
    "model.random": ("“{name}” is not a known shape for a model with random weights.", "Choose one of: {known}."),
    "model.relative": ("“{name}” is not a whole path.", "Write the whole path of the folder, from the first “/” on."),
    "model.remote_code": (
        "The model wants to run code of its own ({key} in {name}).",
        "Luthier never runs code from a model. Choose another one.",
    ),
    "model.remote_code/type": (
        "{name} is of the type {kind}, which transformers does not know without the model's own code.",
        "Luthier never runs code from a model. Choose another one.",
    ),
    "model.shape": "{key} of {name} must be a whole number above 0, and its config.json says {value}.",
    "model.targets/absent": (
        "The adapter is to change the layers {target_modules}, but the model has no {absent}.",
        "Set target_modules to layers that this model has, or leave it out.",
    ),
    "model.targets/unknown": (
        "The adapter is to change layers that {title} does not have: {unknown}.",
        "Set lora.target_modules to some of these, or leave it out: {known}.",
    ),
    "model.truncated/end": ("A weight file ends too early: a part of it is missing.", "Download the model again."),
    "model.truncated/size": (
        "{path} is {word}: it has {size:,} bytes and should have {expected:,}.",
        "Download this file again.",
    ),
    "model.unknown_type": (
        "{name} is of the type {kind}, which transformers does not know.",
        "Choose another model. Luthier never runs code from a model.",
    ),
    "model.writes_none": "{title} is an encoder: it sorts texts and writes none. The method {method} trains models "
    "that write.",
}
