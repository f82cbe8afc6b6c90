"""Training: rows to optimizer batches, batches to micro-batches, these to steps, steps to checkpoints and events."""
