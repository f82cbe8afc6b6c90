"""Rows under a chat template: text, spans, and the mask of what is trained."""
