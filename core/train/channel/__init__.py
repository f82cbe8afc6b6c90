"""A worker's events, commands and meter readings."""
