"""Decisions as a service: an append-only log of events, states that are caches of it, and an HTTP interface."""
