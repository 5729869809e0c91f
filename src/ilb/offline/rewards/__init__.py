"""Reward recipes: how encodings become expected rewards."""
