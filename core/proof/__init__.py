"""PROOF: benches of the fast core on this machine, run on request and kept."""
