"""What Luthier knows and does, without a window: contract, light floor, heavy floor (see CONTRIBUTING.md)."""
