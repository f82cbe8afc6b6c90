"""Held-out loss, and answers to questions, while training."""
