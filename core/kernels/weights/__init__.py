"""The forms in which frozen weights are held, and their dequantisation."""
