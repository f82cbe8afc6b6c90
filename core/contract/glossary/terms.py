"""The words of the trade, each explained once: the glossary's table, from the data to what is taken home.

A term has the field's name, by which people search for it. Its first sentence (``brief``) says it in plain words and
also stands alone, as the help of a setting that asks for it (``knob(term=…)``); ``more`` goes on where a person wants
to know.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Term:
    """A word explained. ``key`` is its anchor on the page and what ``explain`` takes."""

    key: str
    name: str
    """The field's name; a second one may stand behind it in brackets."""
    brief: str
    more: str
    also: tuple[str, ...] = ()
    """Keys of terms that are near."""
    names: tuple[str, ...] = ()
    """Other words by which a person may ask for it."""

    @property
    def text(self) -> str:
        """The whole explanation."""
        return f"{self.brief} {self.more}"


@dataclass(frozen=True)
class Part:
    """Terms that belong together."""

    key: str
    title: str
    terms: tuple[Term, ...]


DATA = (
    Term(
        "token", "Token",
        "A piece of text as a model reads and writes it: a short word, or a part of a longer one.",
        "Lengths, speed and memory are counted in them. Four tokens are roughly three English words.",
        ("max-length", "pass"), ("tokens", "tokenizer", "tokenised", "piece of text"),
    ),
    Term(
        "template", "Chat template",
        "How a chat is written as text: the markers around each turn that tell the model who is speaking.",
        "Each model was taught with its own. Training and asking must use the same one, so it is kept with the run.",
        ("token", "mask"), ("chatml",),
    ),
    Term(
        "mask", "Loss mask",
        "Which part of each row is learned: only the marked part. The rest is read as context.",
        "Usually that is the answers: a model that also learns the questions learns to ask them.",
        ("loss", "template"), ("train on", "masking"),
    ),
    Term(
        "max-length", "Max length",
        "Longer rows are cut off. A higher limit needs more memory.",
        "What is cut off is not learned. A model cannot read further than its own limit, its context.",
        ("token", "pass"),
        ("context length", "context window", "sequence length", "reads up to", "longest example", "context"),
    ),
    Term(
        "rope-scaling", "RoPE scaling",
        "Stretches a model's positions, so that it reads longer rows than it was made for.",
        "Most models place tokens by rotations (RoPE) that they know up to one length. YaRN keeps near positions as "
        "they are and moves far ones closer; linear moves all. The exported model says it, and loaders apply it.",
        ("max-length",), ("rope", "yarn", "ntk", "long context", "context extension", "rope theta"),
    ),
    Term(
        "held-out", "Held-out rows",
        "Rows set aside and never trained on, to measure what was learned.",
        "They are chosen at random, always the same ones for the same seed, and can be asked in Try.",
        ("held-out-loss", "seed"), ("validation", "eval", "evaluation", "evaluation set", "evaluation split"),
    ),
    Term(
        "pairs", "Preference pairs",
        "A question with one answer to prefer and one to avoid: chosen and rejected.",
        "From such rows a model learns a taste, which examples of good answers alone do not show.",
        ("dpo",), ("preference", "chosen", "rejected", "preference data", "better and worse answer"),
    ),
)  # fmt: skip

MODEL = (
    Term(
        "base-model", "Base model",
        "The model that a run starts from. It stays as it is; the run trains an adapter beside it.",
        "“Base” also names one that only continues text, “instruct” one that was already taught to answer.",
        ("adapter", "weights"), ("base", "instruct", "original"),
    ),
    Term(
        "weights", "Weights",
        "The numbers that a model consists of; learning means changing numbers.",
        "4B stands for four billion of them. At 16 bits each they fill 8 GB.",
        ("quantisation", "base-model"), ("parameter", "weight", "safetensors", "parameters"),
    ),
    Term(
        "quantisation", "Quantization",
        "How the base model is stored: 4 bits per weight instead of 16, about a quarter of the memory.",
        "The base model is rounded to 16 levels (NF4) and stays that way; the adapter beside it learns at full "
        "precision. That pair is called QLoRA.",
        ("weights", "adapter", "precision"),
        ("4-bit", "4 bit", "4 bits", "16-bit", "quantization", "bitsandbytes", "model in memory", "nf4", "qlora"),
    ),
    Term(
        "precision", "Precision (dtype)",
        "With how many bits the card computes.",
        "bfloat16 (bf16) has room for huge and tiny numbers; float16 (fp16) is for cards without it and needs more "
        "care, which Luthier takes; float32 is slow and exact.",
        ("quantisation",), ("bfloat16", "float16", "float32", "data type", "arithmetic", "bf16", "fp16"),
    ),
)  # fmt: skip

ADAPTER = (
    Term(
        "adapter", "Adapter (LoRA)",
        "What a run trains: small matrices added to the model's own, which change what it says.",
        "A file of some megabytes instead of a whole model. It works together with the base model that it was trained "
        "on, or is merged into it.",
        ("rank", "base-model", "merged"), ("low-rank adapter", "peft", "low rank adaptation"),
    ),
    Term(
        "full-finetuning", "Full finetuning",
        "Every weight of the model learns, and no adapter is made.",
        "Takes twelve bytes of memory for each weight, an adapter beside 4-bit weights less than one: so it is for "
        "small models. It can learn more, and forget more. In between is an adapter with embeddings and head, "
        "for another language.",
        ("adapter", "weights"), ("what learns", "full fine-tuning", "whole model", "embeddings and head"),
    ),
    Term(
        "rank", "Rank (r)",
        "Size of the adapter: a higher rank can learn more and needs more memory.",
        "8 to 32 is enough for a style or a format; much new knowledge needs more.",
        ("adapter", "alpha"), ("lora rank", "size of the adapter"),
    ),
    Term(
        "alpha", "Alpha",
        "Strength of the adapter: its change is scaled by alpha / rank.",
        "As large as the rank, or twice that, is usual. To double it is much like doubling the learning rate.",
        ("rank", "learning-rate"), ("lora alpha", "adapter strength"),
    ),
    Term(
        "dropout", "Dropout",
        "Randomly leaves out part of the adapter's input while training, so that less is memorized.",
        "Helps with few rows that are seen often; 0.05 is a good first value, 0 is usual.",
        ("adapter", "epoch"), ("lora dropout",),
    ),
    Term(
        "bias", "Bias",
        "A number that a layer adds to each of its results.",
        "Few models have them any more. Training them changes the base itself, so they are left alone by default.",
        ("adapter", "weights"), ("biases",),
    ),
    Term(
        "rslora", "rsLoRA",
        "Rank-stabilized LoRA: scales by alpha / √rank, so that high ranks learn as strongly as low ones.",
        "Without it an adapter of rank 128 learns hardly more than one of 16, since its change is scaled down.",
        ("rank", "alpha"), ("rank-stabilised", "rank-stabilized", "rank stabilised lora"),
    ),
    Term(
        "dora", "DoRA",
        "Learns the direction and the magnitude of the weights separately; 10 to 20% slower, with more memory.",
        "Can come closer to training the whole model at small ranks. Without dropout it takes the fast path.",
        ("adapter", "dropout"), ("weight-decomposed",),
    ),
    Term(
        "pissa", "PiSSA (principal singular values)",
        "The adapter begins at the largest singular parts of each matrix, and trains these.",
        "A frozen copy of the start is taken off, so with the adapter off the model is the one that came; saved it "
        "is a plain adapter of twice the rank. Over 4 bits the parts are the quantized matrix's, whose error stays.",
        ("adapter", "rank", "loftq"), ("init lora weights", "pissa niter 16", "adapter start"),
    ),
    Term(
        "loftq", "LoftQ (quantization error)",
        "The adapter begins at the largest parts of what each matrix lost when it was put into 4 bits.",
        "A run begins nearer to the 16-bit model; with the adapter off it is the one that came, in 4 bits. Saved is "
        "the change since the start: over 16 bits the correction would be there twice. Here it is put back over 4 "
        "bits; other programs leave it out.",
        ("adapter", "rank", "pissa"), ("lora-fine-tuning-aware quantization",),
    ),
    Term(
        "lora-plus", "LoRA+",
        "B, the half of an adapter that begins at zero, learns this many times faster than A.",
        "With one rate for both, B lags behind in wide models. Neither memory nor time change.",
        ("adapter", "learning-rate"), ("lora plus", "loraplus", "loraplus lr ratio"),
    ),
)  # fmt: skip

MEMORY = (
    Term(
        "vram", "VRAM",
        "The card's own memory. Model, adapter and what a step needs must fit in it together.",
        "It is not the machine's memory (RAM), which is larger and, for a card, many times slower.",
        ("fit", "quantisation"), ("gpu memory", "video memory", "ram", "graphics memory"),
    ),
    Term(
        "cards", "Cards (GPUs)",
        "Graphics cards that train one model together, each with its share of every step's rows.",
        "Every card holds the whole model and computes with other rows; their gradients are then added up (data "
        "parallel, DDP), so the result is that of one card. Of a model larger than a card, "
        "streamed layers lie in the machine's memory once for all of them.",
        ("vram", "batch"), ("gpu", "gpus", "multi-gpu", "multi gpu", "data parallel", "ddp", "cuda visible devices"),
    ),
    Term(
        "fit", "Fits, tight, too large",
        "Whether the card's free memory will do: with room to spare, barely, or not.",
        "On WSL a full card goes on in the machine's memory (it spills): nothing fails, and steps take many times as "
        "long.",
        ("vram", "probe"), ("spill", "spilled"),
    ),
    Term(
        "activations", "Activations",
        "What every layer computed on the way to the loss; learning needs it on the way back.",
        "It grows with the tokens of a micro-batch and is often the largest part of the memory.",
        ("recompute", "pass"), ("activation", "results in between"),
    ),
    Term(
        "recompute", "Gradient checkpointing",
        "Saves memory by recomputing part of the forward pass; takes up to half more time.",
        "What layers computed is thrown away and computed again when it is needed. The result is the same. (A "
        "checkpoint on disk is something else.)",
        ("activations", "offload", "checkpoint"),
        ("activation checkpointing", "recomputed", "recompute to save memory", "checkpointing"),
    ),
    Term(
        "offload", "Offloading",
        "Keeps each layer's input in the machine's memory and brings it back in time.",
        "Goes one step further than recomputing: the card holds less, and the machine's memory more.",
        ("recompute", "vram"), ("host memory", "pinned"),
    ),
    Term(
        "layer-streaming", "Streamed layers",
        "Layers whose weights lie in the machine's memory and are copied to the card while others compute.",
        "A model can then be larger than the card. The result is the same (sums round in another order where the head "
        "streams too), and where a micro-batch is large enough the copies take no time of their own. Embeddings are "
        "looked up in the machine's memory too.",
        ("vram", "offload", "pass"), ("layer streaming", "weight offloading", "cpu offload", "block swap"),
    ),
    Term(
        "sequence-tiling", "Sequence tiles",
        "Long rows go through a layer a tile of tokens at a time; attention alone sees them whole.",
        "A row can then be several times longer on the same card. The result is the same, and it takes little longer.",
        ("vram", "recompute", "pass"), ("tiled mlp", "sequence tiling", "tile tokens", "long rows"),
    ),
    Term(
        "pass", "Micro-batch size",
        "Tokens that go through the model at once. Affects memory and speed, never the result.",
        "A step's rows go through the model in portions of so many tokens. Smaller portions need less memory.",
        ("packing", "accumulation", "token"), ("tokens per pass", "microbatch", "tokens a pass", "micro-batch"),
    ),
    Term(
        "packing", "Packing",
        "Rows share a micro-batch without padding and without seeing each other.",
        "Otherwise short rows would be filled up with empty tokens to the length of the longest, and those cost time.",
        ("pass", "token"), ("padding", "rows side by side"),
    ),
    Term(
        "kernels", "Kernels",
        "Luthier's own GPU programs, which do several steps of arithmetic at once.",
        "They compute what the textbook says; Proof measures that on your card. Where they do not fit, a run takes "
        "the plain way and says so.",
        ("precision",), ("kernel", "triton"),
    ),
    Term(
        "eight-bit", "8-bit arithmetic",
        "Products with frozen weights in 8 bits: faster, less exact.",
        "Each row has a scale of its own. A product in fp8 is off by about 4 %, in int8 by about 1 %, at random; the "
        "adapter, norms, attention, output head and loss keep 16 or 32 bits and learn beside it. Cards multiply 8-bit "
        "numbers two to four times as fast.",
        ("precision", "quantisation", "kernels"), ("fp8", "int8", "e4m3"),
    ),
    Term(
        "reserved", "Reserved and allocated memory",
        "Allocated is what the numbers fill; reserved is what PyTorch holds of the card for them.",
        "The gaps between, the libraries' own part and other programs come on top; all of it together fills the card.",
        ("vram", "probe"), ("allocator", "allocator gaps", "workspace", "peak allocated", "allocated"),
    ),
    Term(
        "probe", "Probe",
        "A ten-second test: trains the longest step, measures memory and time, and discards the result.",
        "The estimate is arithmetic; this is the real thing, and later estimates follow it.",
        ("fit", "reserved"), ("rehearsal",),
    ),
)  # fmt: skip

WATCHING = (
    Term(
        "loss", "Loss",
        "How much the right answer still surprises the model; lower is better.",
        "It jumps from step to step, since some rows are harder. What counts is where it goes.",
        ("held-out-loss", "gradient-norm"), ("training loss", "how wrong it still is"),
    ),
    Term(
        "held-out-loss", "Held-out loss (evaluation loss)",
        "The loss on rows that were never trained on: what was learned, not what was learned by heart.",
        "When it rises while the training loss still falls, the run has learned enough.",
        ("held-out", "loss", "best", "forgetting"), ("validation loss", "eval loss", "overfitting"),
    ),
    Term(
        "forgetting", "Forgetting (catastrophic forgetting)",
        "What the model could do before and does less well after training.",
        "A report measures it on general texts: how far the probabilities of the next token moved from the base's (KL "
        "divergence), and whether the loss rose. A lower learning rate or rank, fewer epochs and some general rows in "
        "the data keep it small.",
        ("held-out-loss", "learning-rate", "rank"), (),
    ),
    Term(
        "gradient-norm", "Gradient norm",
        "How much the last rows asked the adapter to change.",
        "Steady or falling is good; jumps far above the rest mean odd rows, or a learning rate that is too high.",
        ("clipping", "learning-rate"), ("grad norm", "gradient", "gradients"),
    ),
    Term(
        "rewards", "Rewards and margin",
        "How much likelier an answer has become than it was before training, times beta.",
        "The margin is the chosen answer's reward less the rejected one's and should grow; accuracy is the share of "
        "pairs in which it is above 0. ORPO, SimPO and CPO have no original to compare with: there it is how likely "
        "the answer is now. KTO's KL divergence says how far the model has moved away from the original.",
        ("dpo", "kto", "pairs"), ("reward", "margin", "kl divergence", "kl", "accuracy of pairs"),
    ),
    Term(
        "temperature", "Temperature",
        "0 always takes the likeliest word; higher values are more varied, and less sure.",
        "Compare two models at 0: then their answers do not depend on chance. (A card's temperature is in °C.)",
        ("seed", "token"), ("sampling", "liveliness"),
    ),
)  # fmt: skip

HOME = (
    Term(
        "checkpoint", "Checkpoint",
        "The saved state: all that a run needs to go on from a step, on disk.",
        "It can be resumed, tried and taken home, also when the run was cut off.",
        ("best", "attempt", "recompute"), ("save", "saved", "ckpt", "saved state"),
    ),
    Term(
        "best", "Best checkpoint",
        "The saved state that does best on held-out rows: the lowest loss, or of a model that sorts or scores texts "
        "the highest accuracy (of numbers the smallest mean error).",
        "It is not always the last one, since a run can train for too long. Export takes the best unless you "
        "say otherwise.",
        ("checkpoint", "held-out-loss"), ("best so far", "last"),
    ),
    Term(
        "attempt", "Resume (attempt)",
        "A run that was paused, stopped or cut off goes on from its last checkpoint.",
        "Each start of its process is one attempt; charts and log go on as one run.",
        ("checkpoint", "seed"), ("resumed", "worker"),
    ),
    Term(
        "merged", "Merged weights",
        "The adapter worked into the model: nothing else is needed beside it.",
        "Large, but runs wherever such models run. The adapter alone is small and wants its base model.",
        ("adapter", "weights"), ("merge", "export"),
    ),
    Term(
        "gguf", "GGUF",
        "The file format of llama.cpp: weights, tokenizer and chat template in one file.",
        "Ollama, LM Studio and text-generation-webui read it, with or without a GPU. Usually it is quantized: Q4_K_M, "
        "the common choice, takes 4.9 bits per weight, Q8_0 8.5.",
        ("quantisation", "importance-matrix", "merged"), ("llama.cpp", "ollama", "q4_k_m", "quant"),
    ),
    Term(
        "importance-matrix", "Importance matrix",
        "How large each input of a layer usually is on real texts, so that quantizing loses least where it matters.",
        "Here the texts are rows of the run itself. It helps most at 4 bits and hardly at 8.",
        ("gguf", "quantisation"), ("imatrix",),
    ),
    Term(
        "live-metrics", "Live metrics",
        "A run's curves in another program while it trains: TensorBoard, Weights & Biases, MLflow or Trackio.",
        "Weights & Biases sends them to a server of its own. The run never waits for any of them: a process beside it "
        "reads the log, and goes on where it was if it is started again.",
        ("held-out-loss",), ("tensorboard", "wandb", "mlflow", "trackio", "report_to", "experiment tracking"),
    ),
)  # fmt: skip
