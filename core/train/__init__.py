"""Training: rows to windows, windows to passes, passes to steps, steps to checkpoints, and all of it to events."""
