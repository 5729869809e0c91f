"""The command line: `ilb --help` lists the commands."""

from ilb.cli.app import main, run

__all__ = ["main", "run"]
