"""The processes of a run on several cards and machines: who starts them, and the lines between them."""
