"""Rows as token ids with a mask: one row, a table of them, the cache of tables, and their lengths."""
