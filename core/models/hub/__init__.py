"""The model hub and its cache on this disk."""
