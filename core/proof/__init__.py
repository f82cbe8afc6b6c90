"""PROOF: what the fast core does on this very machine, measured on request and kept with driver and versions."""
