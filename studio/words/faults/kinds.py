"""The two shapes of a page's words for a fault."""

Words = str | tuple[str, str]
"""The cause; or cause and what to do, where that is said otherwise than in the log. Both in a person's words, with the
values of the key in braces."""
