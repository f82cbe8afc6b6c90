"""Encoders of the BERT kind that sort rows into classes: rows end to end, transformers' own classes and weights."""
