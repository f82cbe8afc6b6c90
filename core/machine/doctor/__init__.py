"""What would help this machine: each finding is one line and one action (``examine``)."""
