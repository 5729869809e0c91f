"""Figures from tables; nothing here knows JAX."""
