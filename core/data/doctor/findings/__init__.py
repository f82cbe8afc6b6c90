"""What can be wrong with rows: a file a kind of finding, each a pure function over rows."""
