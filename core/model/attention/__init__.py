"""Packed attention: many rows in one pass, by the backend that suits card and shape."""
