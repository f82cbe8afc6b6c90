"""The model: loading, adapters, attention, loss, checkpointing and fast decoder layers."""
