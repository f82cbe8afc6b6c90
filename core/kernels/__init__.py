"""Kernels: tensors in, tensors out. One op a file, and for each a reference in ``reference.py``."""
