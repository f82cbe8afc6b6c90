"""New run, block 3: goal and settings."""
