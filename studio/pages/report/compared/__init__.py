"""Two to five reports beside each other, as HTML without a script."""
