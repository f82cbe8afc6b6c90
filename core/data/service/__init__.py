"""The data room for the studio: child processes that read, render, make and examine, and can be killed."""
