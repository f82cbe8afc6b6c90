"""The supervisor: owns one job from the queue to its last event, and the worker in between."""
