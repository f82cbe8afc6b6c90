"""New run: the memory budget, what the planner proposes, and the summary with Start."""
