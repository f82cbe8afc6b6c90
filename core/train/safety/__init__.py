"""Faults while training: out of memory, numbers that are not finite, rollback."""
