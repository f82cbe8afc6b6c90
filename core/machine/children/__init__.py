"""Child processes that end with their parent, and answer requests over a pipe of JSON lines."""
