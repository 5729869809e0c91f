"""Pages that a person can open: self-contained HTML."""
