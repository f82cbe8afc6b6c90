"""Rows as token ids with a mask: tables of rows, the cache of tables, and facts of their lengths."""
