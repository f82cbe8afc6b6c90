"""TRY: base and finetuned model asked the same thing. A light client, and a heavy child over a pipe."""
