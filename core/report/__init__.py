"""REPORT: what a finished run learned, what it forgot, and what moved; measured in a job of its own.

schema.py       all that a report says, versioned; light, as are checks, choices, statistics and advice
run.py          the job: base and finetuned model side by side, part by part, within a budget of seconds
"""
