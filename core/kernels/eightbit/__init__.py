"""Products of frozen weights in eight bits: formats, quantisation, the products, and the table of arithmetics."""
