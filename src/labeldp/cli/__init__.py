"""The command line: one module for each command."""

from labeldp.cli.main import main as main
from labeldp.cli.main import run as run
