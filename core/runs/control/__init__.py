"""Runs from outside: prepared, made, started, steered, queued, listed and deleted."""
