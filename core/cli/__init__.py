"""CLI: the command line, one row a command, over the same rooms that the window uses."""
