"""Training: data, steps, checkpoints, events and recovery of one attempt at a run."""
