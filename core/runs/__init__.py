"""The run directory: folder, events log, mailbox, record (a fold over events), store, queue, locks and supervisor.

Light floor: nothing here imports torch. The window only looks through these files; the supervisor owns the worker.
"""
