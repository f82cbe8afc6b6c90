"""New run, block 2: the base model, and models by fit."""
