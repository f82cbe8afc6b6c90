"""The bench: speed, memory and loss of one setting, of a ladder of settings, and of fast beside plain, on this card."""
