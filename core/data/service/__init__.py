"""The data room for the window: warm children that read, render, make and examine, and can be killed."""
