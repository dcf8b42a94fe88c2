"""Crosses of columns that the user names, as an option of recipes: "month,day" or "month,day;origin,dest".

A name that holds a comma, a semicolon or a quote is written in double quotes, with quotes inside doubled.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from labeldp.core.errors import InputError

RECIPES = ("additive", "auto")  # that take crosses
_NAME = re.compile(r'\s*(?:"((?:[^"]|"")*)"|([^,;"]*))\s*(,|;|\Z)')
_SPECIAL = re.compile(r'[,;"]|\A\s|\s\Z')
_EXAMPLE = "month,day for example"

Pairs = tuple[tuple[str, str], ...]


def read_crosses(text: str, columns: Sequence[str]) -> Pairs:
    """Read the crosses of an option.

    Args:
        text: The names of two columns for each cross, separated by a comma; crosses are separated by semicolons.
        columns: The names of the feature columns.

    Returns:
        The names of each cross.

    Raises:
        InputError: A cross does not name two different columns that exist, or is named twice.
    """
    found, parts = [], _parts(text)
    if "," in text and not parts:
        raise InputError(f"The cross {text!r} must name two different columns: {_EXAMPLE}.")
    for names in parts:
        said = ",".join(map(quoted, names))
        absent = next((name for name in names if name not in columns), None)
        if absent is not None:
            raise InputError(f"There is no feature column {absent!r} for the cross {said!r}: name two columns.")
        if len(names) != 2 or names[0] == names[1]:
            raise InputError(f"The cross {said!r} must name two different columns: {_EXAMPLE}.")
        found.append((names[0], names[1]))
    if len({frozenset(pair) for pair in found}) < len(found):
        raise InputError("A cross is named twice: name each once.")
    return tuple(found)


def with_crosses(recipe: str, options: Mapping[str, Any], crosses: Iterable[Any] | None) -> dict[str, Any]:
    """Return the options of a recipe with crosses that were given apart from them.

    Args:
        recipe: The name of the recipe.
        options: Its other options.
        crosses: Pairs of names of columns, or None.

    Returns:
        The options.

    Raises:
        InputError: The recipe takes no crosses, they are given twice, or one is no pair of names.
    """
    pairs = [crosses] if isinstance(crosses, str) else list(crosses or ())
    if not pairs:
        return dict(options)
    if recipe not in RECIPES:
        raise InputError(
            f"Crosses are for the recipes {' and '.join(RECIPES)}, not {recipe}: choose one of these, or name no cross."
        )
    if options.get("cross") is not None:
        raise InputError("Crosses are also given by the option 'cross': give all of them in one way.")
    for pair in pairs:
        names = [] if isinstance(pair, str) else list(pair)
        if len(names) != 2 or not all(isinstance(name, str) and name for name in names):
            raise InputError(f"A cross is a pair of names of columns, ('month', 'day') for example, not {pair!r}.")
    return dict(options) | {"cross": ";".join(",".join(map(quoted, pair)) for pair in pairs)}


def check_crosses(recipe: str, options: Mapping[str, Any], columns: Sequence[str]) -> None:
    """Say at once if a cross among the options of a recipe names no two columns.

    Args:
        recipe: The name of the recipe.
        options: Its options.
        columns: The names of the feature columns.

    Raises:
        InputError: A cross does not name two different columns, or is named twice.
    """
    text = options.get("cross")
    if recipe in RECIPES and isinstance(text, str):
        read_crosses(text, columns)


def split_names(text: str) -> tuple[str, str]:
    """Read one cross from the command line: two names separated by a comma.

    Raises:
        InputError: The text is no such cross.
    """
    parts = _parts(text)
    if len(parts) != 1 or len(parts[0]) != 2:
        raise InputError(f"The cross {text!r} must name two different columns: {_EXAMPLE}.")
    return parts[0][0], parts[0][1]


def quoted(name: str) -> str:
    """Write a name so that it is read back whole."""
    return '"' + name.replace('"', '""') + '"' if _SPECIAL.search(name) else name


def _parts(text: str) -> list[list[str]]:
    """Return the names of each cross; empty names and crosses count for nothing."""
    found, names, place = list[list[str]](), list[str](), 0
    while place <= len(text):
        match = _NAME.match(text, place)
        if match is None:
            raise InputError(f"The cross {text!r} has a quote that does not close, or text beside one: {_EXAMPLE}.")
        name = match[2].strip() if match[1] is None else match[1].replace('""', '"')
        names += [name] if name else []
        if match[3] != ",":
            found += [names] if names else []
            names = []
        place = match.end() + (match[3] == "")
    return found
