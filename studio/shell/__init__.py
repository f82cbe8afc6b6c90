"""The frame around every page: head, header, theme, markup."""
