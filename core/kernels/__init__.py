"""Ops over tensors, one a file, each with a reference in ``reference.py``."""
