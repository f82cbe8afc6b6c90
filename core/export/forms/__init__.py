"""Forms of export: what is written into the draft, and the space that it needs."""
