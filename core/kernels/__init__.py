"""Kernels: tensors in, tensors out. One op a file, and for each a textbook twin in ``reference.py``."""
