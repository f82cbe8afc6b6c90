"""One file per training method: its trainer over the shared step."""
