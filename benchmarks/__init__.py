"""Measurements that are too long for tests: `make bench`."""
