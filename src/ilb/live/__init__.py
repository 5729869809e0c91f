"""Decide for real: one object for each instance, labels in and out, rewards when they come."""
