"""One optimiser step: rows to an optimizer batch, the batch to micro-batches, gradients to an update."""
