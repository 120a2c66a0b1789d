"""Jobs of every kind, many at once, while operators are killed: every job ends as its policy says."""
