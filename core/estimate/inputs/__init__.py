"""What the planner counts with: rows and lengths, a micro-batch in numbers, a layer in bytes, published cards."""
