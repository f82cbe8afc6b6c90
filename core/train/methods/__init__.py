"""One file a way of learning: its trainer over the same step."""
