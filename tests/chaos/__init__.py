"""Killing and losing, by the hundred: what a run must outlive, drawn with a seed and judged by a reader.

    seam.py     a process that is struck inside a drawn system call or byte, or whose disk is full from there on
    small.py    a worker without torch: the real log, mailbox and checkpoints around tensors of bytes
    judge.py    what must be true of a run's folder after every strike
    kills.py    the small process killed inside its writes      jobs.py   the same for supervisors and starters
    fulldisk.py the small process on a full disk                whole.py  whole runs of the built-in model

``python -m tests.chaos`` runs the full numbers; the tests beside it run a tenth.
"""
