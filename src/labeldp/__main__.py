"""`python -m labeldp` is the `labeldp` command."""

from labeldp.cli import main

main()
