"""`python -m ilb` is `ilb`."""

from ilb.cli import main

main()
