"""What is known of a job: a fold over its events, and what follows from it."""
