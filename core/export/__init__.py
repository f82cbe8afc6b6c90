"""EXPORT: the adapter in peft's format or merged 16-bit weights, reloaded in a fresh process before "done" is said."""
