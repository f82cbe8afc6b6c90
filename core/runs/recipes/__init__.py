"""Recipes of other programs, read as configs of ours: a table of keys for each program."""

PROGRAMS = ("llama-factory", "axolotl", "unsloth-studio", "kohya")
"""Their names, as a person types them."""
