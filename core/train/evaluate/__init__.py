"""Measured while training: the held-out loss, answers to questions, and how they change."""
