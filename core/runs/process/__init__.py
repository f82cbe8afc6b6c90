"""Processes of a job: started, known, watched by what they do, and kept awake."""
