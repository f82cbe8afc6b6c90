"""The doctor page."""
