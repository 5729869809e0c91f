"""The offline stage: logs in, `LatentModel` out."""
