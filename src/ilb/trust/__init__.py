"""Whether a model may be believed on these logs, and what would be gained by it."""
