"""The command line: `ilb simulate | fit | score | demo`."""

from ilb.cli.app import main

__all__ = ["main"]
