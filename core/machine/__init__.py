"""MACHINE: this computer, its disk, its settings and its doctor. Nothing here knows a model or a run."""
