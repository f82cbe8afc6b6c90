"""Rows dealt: which are held out, which make a step, and how a step is cut into micro-batches."""
