"""What crosses a process or the disk: errors, config, models, data, estimates, events and commands.

Only the standard library and pydantic are imported here.
"""
