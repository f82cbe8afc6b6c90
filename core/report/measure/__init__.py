"""The job that measures: base and finetuned model beside each other. Heavy: torch, transformers, peft."""
