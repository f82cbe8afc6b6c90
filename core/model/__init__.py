"""The model: loading, adapters, attention, loss, checkpointing, and the swap of decoder layers for fast ones."""
