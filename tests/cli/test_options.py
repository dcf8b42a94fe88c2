import ast
import sys
from pathlib import Path

import pytest
import typer.main

import labeldp
from labeldp.cli import main
from labeldp.cli.options import OPTION_OF_PARAMETER
from labeldp.core.errors import InputError

SOURCE = Path(labeldp.__file__).parent
COMMAND_LINE = sys.modules["labeldp.cli.main"]


def error_parameters():
    """Return every text that the library passes to an error as `parameter`."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "parameter" and isinstance(node.value, ast.Constant):
                yield node.value.value


def option_names(command):
    """Return the names of all options of a command and of its subcommands."""
    names = {name for parameter in command.params for name in parameter.opts}
    return names.union(*(option_names(child) for child in getattr(command, "commands", {}).values()))


def test_every_parameter_of_an_error_has_an_option():
    assert set(error_parameters()) - {None} <= OPTION_OF_PARAMETER.keys()


def test_every_option_in_the_table_exists():
    names = {option.split()[0] for option in OPTION_OF_PARAMETER.values()}
    assert names <= option_names(typer.main.get_command(COMMAND_LINE.app))


@pytest.mark.parametrize("parameter", OPTION_OF_PARAMETER)
def test_the_command_line_appends_the_option_of_a_parameter(monkeypatch, capsys, parameter):
    def fail(**_):
        raise InputError("Choose another value.", parameter=parameter)

    monkeypatch.setattr(COMMAND_LINE, "app", fail)
    monkeypatch.setattr("sys.argv", ["labeldp"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert capsys.readouterr().err == f"labeldp: Choose another value. ({OPTION_OF_PARAMETER[parameter]}.)\n"


@pytest.mark.parametrize(("command", "hint"), [("compare", ""), ("train", " (--missing-public.)")])
def test_only_options_of_the_command_are_named(monkeypatch, capsys, command, hint):
    def fail(**_):
        raise InputError("Choose another value.", parameter="missing")

    monkeypatch.setattr(COMMAND_LINE, "app", fail)
    monkeypatch.setattr("sys.argv", ["labeldp", command, "people.csv"])
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().err == f"labeldp: Choose another value.{hint}\n"
