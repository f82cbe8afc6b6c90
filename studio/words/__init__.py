"""The words of the window, and their look-up."""
