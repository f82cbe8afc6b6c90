"""MODELS: which base model, what its family is, and whether its files are safe to open. Nothing is loaded here."""
