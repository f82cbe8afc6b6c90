"""Benchmarks on this card: one setting, a ladder of optimisations, fast against plain training, and every kernel."""
