"""Frozen weights by form: how each is made 16 bits wide for a product. NF4 is one form, a folder its room."""
