"""What pages show of runs, as plain values made from their records."""
