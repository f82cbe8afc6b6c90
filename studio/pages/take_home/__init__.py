"""The take-home page."""
