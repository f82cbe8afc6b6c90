"""The words of learning: methods, steps, rates."""

from core.contract.glossary.terms import Term

LEARNING = (
    Term(
        "sft", "SFT (supervised finetuning)",
        "Learning from examples: the model sees good answers and learns to write answers like them.",
        "The usual way, and the one to begin with.",
        ("dpo", "pretrain", "loss"), ("supervised", "finetuning", "fine-tuning", "learning from examples"),
    ),
    Term(
        "pretrain", "Continued pretraining",
        "Learning from texts: every token of raw text is learned, as when the model was made.",
        "For the vocabulary and knowledge of a field; answers are taught afterwards, from examples. Texts longer than "
        "the limit go on in the next row. An adapter with embeddings and head takes in more of a new language.",
        ("sft", "full-finetuning"), ("pretraining", "raw text", "domain adaptation", "learning from texts"),
    ),
    Term(
        "dpo", "DPO (direct preference optimization)",
        "Learning from preferences: of two answers to a question the model learns to prefer the better one.",
        "A small beta lets it move far from the original, a large one keeps it near.",
        ("pairs", "sft", "orpo", "simpo", "cpo", "loss-type"),
        ("beta", "preference strength", "learning from preferences"),
    ),
    Term(
        "orpo", "ORPO (odds ratio preference optimization)",
        "Learning from pairs without a reference model: the chosen answer is learned as in SFT, and the odds of the "
        "rejected one are pushed down.",
        "Take it where the model has not learned this kind of answer yet: it does SFT and preferences in one run.",
        ("dpo", "pairs"), ("odds ratio",),
    ),
    Term(
        "simpo", "SimPO (simple preference optimization)",
        "Learning from pairs without a reference model: chosen answers are to lead by a margin, each measured by its "
        "mean per token, so that long ones have no advantage.",
        "Take it where DPO makes answers longer and longer. It wants a larger beta (2) and small learning rates.",
        ("dpo", "pairs"), ("target margin", "gamma", "length normalisation"),
    ),
    Term(
        "cpo", "CPO (contrastive preference optimization)",
        "Learning from pairs without a reference model: DPO's loss, and the chosen answer learned as in SFT beside it.",
        "Take it where the chosen answers are good enough to be copied; it was made for translation.",
        ("dpo", "pairs"), ("contrastive preference",),
    ),
    Term(
        "kto", "KTO (Kahneman-Tversky optimization)",
        "Learning from thumbs up and thumbs down: single answers, each marked good or bad, without pairs.",
        "Good and bad answers need not be equally many; weights make up for that.",
        ("dpo",), ("thumbs up and down", "marked answers", "desirable", "undesirable", "unpaired preference"),
    ),
    Term(
        "reward-model", "Reward model",
        "Learning to score: of two answers the better one is to get the higher score; the model writes nothing.",
        "For ranking answers, or as the judge of reinforcement learning. Its measure is the share of held-out pairs "
        "that it puts in the right order.",
        ("pairs", "dpo", "classification"), ("bradley-terry", "preference model", "scores"),
    ),
    Term(
        "classification", "Classification",
        "Learning to sort texts: each text gets a label, several labels, or a number (regression).",
        "A small encoder such as BERT, trained whole, is quick and often as good as a large model with an adapter. "
        "Beside accuracy look at macro F1, the mean over labels: with rare labels accuracy alone says little.",
        ("sft", "full-finetuning", "held-out"),
        ("classify", "labels", "sequence classification", "regression", "macro f1", "confusion matrix", "sort texts"),
    ),
    Term(
        "loss-type", "Loss type",
        "Which formula a preference method uses to compare chosen and rejected answers.",
        "sigmoid is the usual one. hinge stops where the lead is large enough, ipo aims at a fixed lead per token, "
        "robust allows for pairs that are the wrong way round, apo_zero makes chosen answers likelier and rejected "
        "ones less likely, apo_down makes both less likely, sigmoid_norm counts per token.",
        ("dpo", "cpo", "kto"), ("hinge", "ipo", "apo", "robust", "label smoothing"),
    ),
    Term(
        "step", "Step",
        "One small update of the adapter, computed from a few rows.",
        "Its number of rows is batch size times gradient accumulation. A run has some hundred or thousand steps.",
        ("batch", "epoch"), ("steps", "optimizer step"),
    ),
    Term(
        "batch", "Batch size",
        "Rows that are processed together before each update.",
        "With more rows per step each update is steadier, and an epoch has fewer of them.",
        ("accumulation", "step"), ("rows at once",),
    ),
    Term(
        "accumulation", "Gradient accumulation",
        "How many batches make one step: the same result as one large batch, in less memory.",
        "Four times 4 rows teach what 16 rows at once would, in the memory of the largest micro-batch.",
        ("batch", "pass"), ("batches a step",),
    ),
    Term(
        "epoch", "Epochs",
        "How many times the run goes through all rows.",
        "One to three is usual. With more, rows are learned by heart: then the held-out loss rises again.",
        ("step", "held-out-loss"), ("passes over the data",),
    ),
    Term(
        "learning-rate", "Learning rate",
        "Size of each update: too high forgets, too low learns little.",
        "0.0002 is usual for adapters, far less for preferences.",
        ("schedule", "warm-up"), ("lr", "rate", "how strongly to learn"),
    ),
    Term(
        "schedule", "Learning rate schedule",
        "How the learning rate changes over the run.",
        "Usually it falls to zero, in a straight line or along a curve (cosine), so that the last steps only polish.",
        ("learning-rate", "warm-up"), ("scheduler", "cosine", "linear", "rate over time"),
    ),
    Term(
        "warm-up", "Warm-up steps",
        "Steps at the start over which the learning rate rises from zero.",
        "The first updates are the least certain, so they are kept small.",
        ("learning-rate", "schedule"), ("warmup",),
    ),
    Term(
        "weight-decay", "Weight decay",
        "Pulls the trained weights slightly towards zero at every step.",
        "What nothing in the data asks for fades. 0.01 is mild, 0 turns it off.",
        ("adapter", "dropout"), ("regularisation",),
    ),
    Term(
        "clipping", "Gradient clipping",
        "Limits how large one step's gradient can be.",
        "It keeps a single odd row from throwing the model off.",
        ("gradient-norm",), ("max grad norm", "clip", "limit of one step"),
    ),
    Term(
        "optimiser", "Optimizer",
        "Turns gradients into updates of the weights, remembering earlier steps.",
        "AdamW keeps two numbers for every trained one; its 8-bit form keeps them in a quarter of the memory; "
        "paged, they move to the machine's memory when the card is full. Lion keeps one, Adafactor a few for each "
        "matrix.",
        ("step", "learning-rate"), ("optimizer", "adamw", "adamw 8bit", "paged adamw", "lion", "adafactor", "muon"),
    ),
    Term(
        "neftune", "NEFTune",
        "Adds a little noise to the embeddings while training, so that answers are not memorized word for word.",
        "Small instruction sets gain most, and answers get longer. Held-out rows are measured without it.",
        ("weight-decay", "dropout"), ("noise", "noisy embeddings", "neftune noise alpha"),
    ),
    Term(
        "seed", "Seed",
        "Starting point of all random choices: the same seed gives the same run.",
        "It decides the order of rows, which of them are held out, and the adapter's first numbers.",
        ("held-out",), ("random seed",),
    ),
)  # fmt: skip
