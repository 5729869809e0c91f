"""Identifiable latent bandits."""
