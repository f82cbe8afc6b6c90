"""What goes wrong while training and how it is survived: memory, numbers, rollback."""
