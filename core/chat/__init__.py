"""TRY: base and finetuned model answer the same question; a light client, and a heavy child over a pipe."""
