"""A run's events, passed on to programs that draw experiments; each is a process of its own beside the run."""
