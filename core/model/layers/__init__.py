"""Fast decoder layers, their swap into a model, what they keep for the backward pass, and the loss."""
