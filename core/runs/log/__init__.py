"""The events log: one writer, any number of readers, and how it changes hands."""
