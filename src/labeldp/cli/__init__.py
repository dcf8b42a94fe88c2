"""The command line: one file for each command."""

from labeldp.cli.main import main as main
from labeldp.cli.main import run as run
