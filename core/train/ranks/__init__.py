"""Several processes that train one model together: a card each, one of them the worker (rank 0)."""
