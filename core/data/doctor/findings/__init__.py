"""The kinds of findings: pure functions over rows, one file a kind."""
