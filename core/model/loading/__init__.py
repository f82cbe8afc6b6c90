"""Loads a base model: weights from disk or random, streamed to the card in the form that a run asks for."""
