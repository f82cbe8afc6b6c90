"""The ladder of BERT: an encoder learns to sort texts, one optimisation after another."""
