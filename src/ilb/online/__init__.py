"""The online stage: a `LatentModel` in, decisions for one instance out."""
