"""EXPORT: the adapter in peft's format or merged 16-bit weights, verified by a reload in a fresh process."""
