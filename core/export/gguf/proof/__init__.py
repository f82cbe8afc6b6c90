"""What a GGUF file must show before it is done: the same tokens, the same answers, and what training brought."""
