"""The watch page."""
