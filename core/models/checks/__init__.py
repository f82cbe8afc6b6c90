"""A model or adapter folder, looked at before any library opens it."""
