"""A model or adapter folder, checked before any library opens it."""
