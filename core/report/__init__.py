"""REPORT: what a finished run learned, what it forgot, and what moved in its weights.

schema.py says all that a report holds. ``measure/`` is the job that makes it: base and finetuned model beside each
other, part by part, within a budget of seconds.
"""
