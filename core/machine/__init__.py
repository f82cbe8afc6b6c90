"""MACHINE: this computer, its disk and its doctor. Nothing here knows a model or a run."""
