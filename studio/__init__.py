"""The window: pages over the rooms of ``core``. It looks and steers; no run lives in it."""
