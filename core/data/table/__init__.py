"""A data file as a table: where its rows stand, which of them fit a wish, and a person's changes over them."""
