"""Attention over packed rows, by the backend that suits card and shape."""
