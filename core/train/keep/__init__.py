"""What is kept of a run so that it goes on exactly: checkpoints, state, rows, and what the result depends on."""
