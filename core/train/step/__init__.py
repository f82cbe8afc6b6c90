"""One optimiser step: batch, micro-batches, gradients, update."""
