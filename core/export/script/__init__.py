"""A run as a folder that trains without this program: its rows as text, and a script on plain libraries."""
