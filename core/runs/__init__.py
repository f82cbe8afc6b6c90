"""The run directory: folder, events log, mailbox, record (a fold over events), store, queue, locks and supervisor.

Nothing here imports torch. The studio only reads a run's files; its supervisor owns the worker.
"""
