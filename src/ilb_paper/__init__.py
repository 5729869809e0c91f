"""Every table and figure of the paper as a value, the claims they decide, and the one runner for all of them."""
