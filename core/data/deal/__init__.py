"""Which rows are held out, which make an optimizer step, and how a step is cut into micro-batches."""
