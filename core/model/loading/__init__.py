"""Weights from disk or drawn at random, streamed to the card in the form that a run asks for."""
