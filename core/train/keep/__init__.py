"""What a run resumes from: checkpoints, optimiser state, the split, and what its result depends on."""
