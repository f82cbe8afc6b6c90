"""Child processes: tied to who started them, asked and answering over a pipe of JSON lines."""
