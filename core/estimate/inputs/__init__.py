"""What the planner counts with: rows and lengths, a pass in numbers, a layer in bytes, published cards."""
