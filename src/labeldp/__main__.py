"""`python -m labeldp` is the `labeldp` command."""

from labeldp.cli import run

run()
