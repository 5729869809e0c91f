"""The command line: `ilb simulate | fit | score | demo | reproduce`."""

from ilb.cli.app import main, run

__all__ = ["main", "run"]
