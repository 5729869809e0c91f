"""The command line: `ilb simulate | fit | score | demo | reproduce`."""

from ilb.cli.app import main

__all__ = ["main"]
