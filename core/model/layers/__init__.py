"""The fast layers: what stands in for a decoder layer, what it keeps, and the swap itself."""
