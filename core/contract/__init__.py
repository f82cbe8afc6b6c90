"""The words that cross a process or the disk: errors, config, models, data, estimates, events and commands.

Only the standard library and pydantic are imported here, so that the window, the command line, the supervisor and
the worker can all read each other without loading anything heavy.
"""
