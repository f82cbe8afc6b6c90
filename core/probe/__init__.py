"""PROBE: ten seconds of the real thing, to see what a plan can only reckon."""
