"""What is said of a model's folder, config and weights: message and hint by key."""

MODELS = {
    "model.absurd/config": ("Expected {key} of at most {most:,} in {name}, found {shown}.", "Choose another model."),
    "model.absurd/memory": (
        "Expected a config and a tokenizer of {name} that are read within {megabytes:,} MB, found more.",
        "Choose another model.",
    ),
    "model.absurd/tokenizer": ("Expected {expected} in {path}, found {found}.", "Choose another model."),
    "model.adapter/config_beside": (
        "Expected a whole model in {folder}, found an adapter's config beside it, which names another base.",
        "Take adapter_config.json out of the folder.",
    ),
    "model.adapter/files": (
        "Expected {config} and {weights}, found neither or one in {folder}.",
        "Choose a folder that holds a LoRA adapter in peft's format.",
    ),
    "model.adapter/no_base": (
        "Expected a whole model in {folder}, found an adapter without its base.",
        "Choose its base model, and start from the run that made the adapter (resume_from).",
    ),
    "model.adapter/none": ("Expected a LoRA adapter in {folder}, found none.", "Check it."),
    "model.adapter/not_plain": (
        "Expected a plain LoRA adapter in {folder}, found {key}: {shown}.",
        "Choose an adapter that was made here.",
    ),
    "model.adapter/other_model": (
        "Expected an adapter made for this model in {folder}, found: {reason}",
        "Use the adapter with the base model that it was trained on.",
    ),
    "model.adapter/rank": (
        "Expected rank r of the tensors ({held}) in {folder}, found {rank}.",
        "Config and weights are of two adapters: copy both again.",
    ),
    "model.bad_file": (
        "Expected {kind} in {path}, found something else.",
        "Files that can run code are never opened; fetch the file again.",
    ),
    "model.bad_index/elsewhere": (
        "Expected {name!r} in {file} as {index} says, found it elsewhere or nowhere.",
        "Fetch the model again.",
    ),
    "model.bad_index/no_map": ("Expected weight_map in {index}, found none.", "Fetch the file again."),
    "model.bad_index/twice": (
        "Expected every tensor once in {folder}, found {twice!r} in two files.",
        "Fetch the model again.",
    ),
    "model.bad_json": ("Expected a JSON object in {path}, found something else ({reason}).", "Fetch the file again."),
    "model.bad_weights/headers": ("Expected weights in {folder}, found headers of over 64 MB.", ""),
    "model.bad_weights/length": ("Expected {expected} bytes of {name}, found {size}.", ""),
    "model.bad_weights/not_safetensors": (
        "Expected safetensors in {path}, found something else ({reason}).",
        "Fetch the file again.",
    ),
    "model.encoder_whole": (
        "Expected an encoder to be trained whole (train.learns everything), found {learns} with {title}.",
        "Choose everything, or a language model.",
    ),
    "model.experts": ("Expected one MLP a layer in {name}, found a mixture of experts.", "Choose a dense model."),
    "model.files": ("Expected a model in {folder}, found more than {most:,} files.", ""),
    "model.incomplete": (
        "Expected every weight of the model in {folder}, found {count} missing, first {missing}.",
        "Fetch the model again; its download is incomplete or it is another architecture.",
    ),
    "model.large_file": (
        "Expected at most {limit} MB in {path}, found {size:,.0f} MB.",
        "No model needs that much here; choose another one.",
    ),
    "model.load": (
        "Expected a causal language model in safetensors in {folder}, found: {reason}",
        "Choose another model, or fetch this one again.",
    ),
    "model.original": (
        "Expected the 16-bit weights that the model's 4 bits were made of, to begin at what these lose (LoftQ), found: "
        "{reason}.",
        "Choose the adapter start default, or fetch the 16-bit model.",
    ),
    "model.memory": (
        "Expected room for the weights of {name}, found the card full.",
        "Choose 4-bit weights or a smaller model, or close what else uses the card.",
    ),
    "model.unstreamable": (
        "Expected {name}'s layers as they lie on disk, to stream them, found: {reason}",
        "Choose streamed_layers 0, or another model.",
    ),
    "model.misfit": (
        "Expected {expected} in {name} as its config.json says, found {found}.",
        "Config and weights are of two models, or the download is damaged: fetch it again.",
    ),
    "model.missing_shard/listed": (
        "Expected {count} weight files in {folder}, found {there}; missing: {missing}{more}.",
        "Finish the download or copy the missing files.",
    ),
    "model.missing_shard/no_index": (
        "Expected {expected} weight files and {index} in {folder}, found {count} and no index.",
        "Finish the download or copy the missing files.",
    ),
    "model.no_file": ("Expected a file at {path}, found something else.", "Remove or replace it."),
    "model.no_folder": ("Expected a model folder with config.json at {folder}, found none.", "Check the path."),
    "model.no_labels": (
        "Expected the names of the labels in {folder}, found none.",
        "Choose another checkpoint, or train again.",
    ),
    "model.no_scores": (
        "Expected a model that can give scores, found type {kind}, for which transformers has no such class.",
        "Choose a model of another type, such as Llama, Qwen or BERT.",
    ),
    "model.rope": (
        "Expected a model whose rotary positions can be scaled, found {title}: {reason}.",
        "Set model.rope_scaling to auto and model.rope_theta to 0, or choose another model.",
    ),
    "model.no_tokenizer": (
        "Expected a tokenizer ({file}) in {folder}, found none.",
        "Copy the tokenizer files of the model into it.",
    ),
    "model.no_type": ("Expected model_type in the config.json of {name}, found none.", ""),
    "model.no_weights": ("Expected safetensors files in {folder}, found no weights.", ""),
    "model.not_causal": (
        "Expected a model that continues text (...ForCausalLM), found {classes} in {name}.",
        "Choose a language model.",
    ),
    "model.not_encoder": (
        "Expected an encoder (...ForMaskedLM, ...ForSequenceClassification), found {classes} in {name}.",
        "Choose another model.",
    ),
    "model.not_here/chat": ("Expected {title} on this machine, found it gone.", "Download it again."),
    "model.not_here/report": ("Expected {title} on this machine, found it gone.", "Download it again, then ask anew."),
    "model.not_here/export": ("Expected {title} on this machine, found it gone.", "Download it again, then export."),
    "model.not_safetensors": (
        "Expected safetensors files in {folder}, found {found}.",
        "Only safetensors are loaded: other formats can run code or are made for other programs.",
    ),
    "model.outside/index": ("Expected file names in {index}, found {name!r} elsewhere.", ""),
    "model.outside/init_inputs": ("Expected no init_inputs in {name}, found some.", "Choose another model."),
    "model.outside/link": ("Expected {name} inside {folder}, found a link to {target}.", "Copy the file there."),
    "model.outside/templates": (
        "Expected chat templates with plain names in {name}, found {shown}.",
        "Choose another model.",
    ),
    "model.outside/tokenizer": ("Expected file names in {name}, found {key} elsewhere.", "Choose another model."),
    "model.outside/weights": (
        "Expected weights under their usual names beside {name}, found transformers_weights in it.",
        "Choose another model.",
    ),
    "model.quantised": (
        "Expected 16- or 32-bit weights in {name}, found {found} weights.",
        "Choose the original model; it is quantised to 4 bits here while it is loaded.",
    ),
    "model.random": ("Expected the name of a known shape after random:, found {name!r}.", "Known: {known}."),
    "model.relative": ("Expected an absolute folder, found {name!r}.", "Write the whole path."),
    "model.remote_code": (
        "Expected no code to be asked for in {name}, found {key}.",
        "Code from a model is never run here; choose another model.",
    ),
    "model.remote_code/type": (
        ("Expected an architecture that transformers knows, found {kind!r} in {name}, which brings code of its own."),
        "Code from a model is never run here; choose another model.",
    ),
    "model.shape": (
        "Expected {key} as a positive number in the config.json of {name}, found {value!r}.",
        "Choose a model of a Llama-like family.",
    ),
    "model.targets/absent": (
        "Expected the modules {target_modules} in the model, found no {absent}.",
        "Choose target_modules that this model has.",
    ),
    "model.targets/unknown": ("Expected lora.target_modules that {title} has, found {unknown}.", "It has {known}."),
    "model.truncated/end": ("Expected more bytes in a weight file, found its end.", "Fetch it again."),
    "model.truncated/size": (
        "Expected {expected:,} bytes in {path}, found {size:,}: the file is {word}.",
        "Fetch the file again.",
    ),
    "model.unknown_type": (
        "Expected an architecture that transformers knows, found {kind!r} in {name}.",
        "Code from a model is never run here; choose another model.",
    ),
    "model.writes_none": (
        "Expected a language model for the method {method}, found {title}: an encoder sorts texts and writes none.",
        "Choose a language model, or rows of texts with labels.",
    ),
}
