"""Encoder recipes: how contexts become encodings."""
