"""New run, block 1: the data, its preview, lengths and examination."""
