"""A job's folder: its files, what they say, and what is wrong with them."""
