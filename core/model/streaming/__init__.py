"""Frozen weights in the machine's own memory, copied to the card layer by layer while others compute.

::

    host_pages    pinned memory in pages, and what lies across them
    ring          slots on the card, and which layer lies in which
    layers        which layers stream, and how they ask for their weights
    rows          embeddings looked up on the host
    head          the head's rows, tile by tile
"""
