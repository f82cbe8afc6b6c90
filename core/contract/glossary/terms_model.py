"""The glossary's table, first half: data, model and adapter. What a term is: ``core/contract/glossary/term.py``."""

from core.contract.glossary.term import Term

DATA = (
    Term(
        "token", "Token",
        "A piece of text as a model reads and writes it: a short word, or a part of a longer one.",
        "Lengths, speed and memory are counted in them. Four tokens are roughly three English words.",
        ("max-length", "pass"), ("tokens", "tokenizer", "tokenised", "piece of text"),
    ),
    Term(
        "template", "Chat template",
        "How a chat is written: the marks around questions and answers that tell a model who is speaking.",
        "Each model was taught with its own. Training and asking must use the same one, so it is kept with the run.",
        ("token", "mask"), ("chatml",),
    ),
    Term(
        "mask", "Loss mask",
        "What is learned: of each row only the marked pieces; the rest is read, so that they make sense.",
        "Usually that is the answers: a model that also learns the questions learns to ask them.",
        ("loss", "template"), ("train on", "masking"),
    ),
    Term(
        "max-length", "Max length",
        "The longest example; longer rows are cut. Costs memory.",
        "What is cut off is not learned. A model cannot read further than its own limit, its context.",
        ("token", "pass"),
        ("context length", "context window", "sequence length", "reads up to", "longest example", "context"),
    ),
    Term(
        "held-out", "Held-out rows",
        "Rows kept aside and never trained on, to measure what was learned.",
        "They are chosen by chance, the same ones whenever the seed is the same, and can be asked in Try.",
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
        "4B stands for four thousand million of them. At 16 bits each they fill 8 GB.",
        ("quantisation", "base-model"), ("parameter", "weight", "safetensors", "parameters"),
    ),
    Term(
        "quantisation", "Quantisation",
        "How the base model is held: 4 bits a weight instead of 16 take about a quarter of the memory.",
        "The base model is rounded to 16 levels (NF4) and stays so; the adapter learns in full beside it. That pair is "
        "called QLoRA.",
        ("weights", "adapter", "precision"),
        ("4-bit", "4 bit", "4 bits", "16-bit", "quantization", "bitsandbytes", "model in memory", "nf4", "qlora"),
    ),
    Term(
        "precision", "Precision (dtype)",
        "With how many bits the card computes.",
        "bfloat16 (bf16) has room for huge and tiny numbers; float16 (fp16) is for cards without it and needs more "
        "care, which is taken; float32 is slow and exact.",
        ("quantisation",), ("bfloat16", "float16", "float32", "data type", "arithmetic", "bf16", "fp16"),
    ),
)  # fmt: skip

ADAPTER = (
    Term(
        "adapter", "Adapter (LoRA)",
        "What a run trains: small tables beside the model's own, which change what it says.",
        "A file of some megabytes instead of a whole model. It works together with the base model that it was trained "
        "on, or is merged into it.",
        ("rank", "base-model", "merged"), ("low-rank adapter", "peft", "low rank adaptation"),
    ),
    Term(
        "rank", "Rank (r)",
        "Size of the adapter: how much can be learned. More rank, more memory.",
        "8 to 32 is enough for a style or a format; much new matter wants more.",
        ("adapter", "alpha"), ("lora rank", "size of the adapter"),
    ),
    Term(
        "alpha", "Alpha",
        "Adapter strength: the adapter's change is scaled by alpha / rank.",
        "As large as the rank, or twice that, is usual. To double it is much like doubling the learning rate.",
        ("rank", "learning-rate"), ("lora alpha", "adapter strength"),
    ),
    Term(
        "dropout", "Dropout",
        "Leaves parts of the input out by chance, so that less is learned by heart.",
        "Helps with few rows that are seen often; 0.05 is a beginning, 0 is usual.",
        ("adapter", "epoch"), ("lora dropout",),
    ),
    Term(
        "bias", "Bias",
        "A number that a layer adds to each of its results.",
        "Few models have them any more. To train them changes the base itself, so they are left alone by default.",
        ("adapter", "weights"), ("biases",),
    ),
    Term(
        "rslora", "rsLoRA",
        "Even strength at any rank: divides by the root of the rank instead of the rank.",
        "Without it an adapter of rank 128 learns hardly more than one of 16, since its change is scaled down.",
        ("rank", "alpha"), ("rank-stabilised", "rank-stabilized", "rank stabilised lora"),
    ),
    Term(
        "dora", "DoRA",
        "Learns direction and size of a change as two things; slower.",
        "Can come closer to training the whole model at small ranks. The fast path is not taken.",
        ("adapter", "kernels"), ("weight-decomposed",),
    ),
)  # fmt: skip
