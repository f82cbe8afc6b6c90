"""The glossary page."""
