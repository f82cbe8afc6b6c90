"""The probe: a run's longest step, measured for ten seconds on this machine, beside what the plan says of it."""
