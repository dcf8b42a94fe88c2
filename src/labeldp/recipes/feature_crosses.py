"""Crosses of columns that the user names, as an option of recipes: "month,day" or "month,day;origin,dest".

A name with a comma, a semicolon or a quote is written in double quotes, and quotes inside are doubled.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from labeldp.core.errors import InputError

# The recipes that have an option for crosses.
CROSSING_RECIPES = ("additive", "auto")
_NAME = re.compile(r'\s*(?:"((?:[^"]|"")*)"|([^,;"]*))\s*(,|;|\Z)')
_SPECIAL = re.compile(r'[,;"]|\A\s|\s\Z')
_EXAMPLE = "month,day for example"

CrossPairs = tuple[tuple[str, str], ...]


def parse_crosses(text: str, columns: Sequence[str]) -> CrossPairs:
    """Read the crosses of an option.

    Args:
        text: The names of two columns for each cross, separated by a comma; crosses are separated by semicolons.
        columns: The names of the feature columns.

    Returns:
        The names of each cross.

    Raises:
        InputError: A cross does not name two different columns that exist, or is named twice.
    """
    crosses, name_lists = [], _parse_names(text)
    if "," in text and not name_lists:
        raise InputError(f"The cross {text!r} must name two different columns: {_EXAMPLE}.")
    for names in name_lists:
        quoted_names = ",".join(map(quote_name, names))
        absent = next((name for name in names if name not in columns), None)
        if absent is not None:
            raise InputError(f"There is no feature column {absent!r} for the cross {quoted_names!r}: name two columns.")
        if len(names) != 2 or names[0] == names[1]:
            raise InputError(f"The cross {quoted_names!r} must name two different columns: {_EXAMPLE}.")
        crosses.append((names[0], names[1]))
    if len({frozenset(pair) for pair in crosses}) < len(crosses):
        raise InputError("A cross is named twice: name each once.")
    return tuple(crosses)


def add_crosses(recipe: str, options: Mapping[str, Any], crosses: Iterable[Any] | None) -> dict[str, Any]:
    """Add crosses to the options of a recipe.

    Args:
        recipe: The name of the recipe.
        options: The recipe's other options.
        crosses: Pairs of column names, or None.

    Returns:
        The options with the crosses.

    Raises:
        InputError: The recipe takes no crosses, the options already have some, or one is no pair of names.
    """
    pairs = [crosses] if isinstance(crosses, str) else list(crosses or ())
    if not pairs:
        return dict(options)
    if recipe not in CROSSING_RECIPES:
        raise InputError(
            f"Crosses are for the recipes {' and '.join(CROSSING_RECIPES)}, not {recipe}: choose one of these, or name "
            "no cross."
        )
    if options.get("cross") is not None:
        raise InputError("Crosses are also given by the option 'cross': give all of them in one way.")
    for pair in pairs:
        names = [] if isinstance(pair, str) else list(pair)
        if len(names) != 2 or not all(isinstance(name, str) and name for name in names):
            raise InputError(f"A cross is a pair of names of columns, ('month', 'day') for example, not {pair!r}.")
    return dict(options) | {"cross": ";".join(",".join(map(quote_name, pair)) for pair in pairs)}


def check_crosses(recipe: str, options: Mapping[str, Any], columns: Sequence[str]) -> None:
    """Check the crosses among the options of a recipe.

    Args:
        recipe: The name of the recipe.
        options: The recipe's options.
        columns: The names of the feature columns.

    Raises:
        InputError: A cross does not name two different columns, or is named twice.
    """
    text = options.get("cross")
    if recipe in CROSSING_RECIPES and isinstance(text, str):
        parse_crosses(text, columns)


def parse_cross(text: str) -> tuple[str, str]:
    """Read one cross: two column names, separated by a comma.

    Args:
        text: The names.

    Returns:
        The two names.

    Raises:
        InputError: The text does not hold two names.
    """
    name_lists = _parse_names(text)
    if len(name_lists) != 1 or len(name_lists[0]) != 2:
        raise InputError(f"The cross {text!r} must name two different columns: {_EXAMPLE}.")
    return name_lists[0][0], name_lists[0][1]


def quote_name(name: str) -> str:
    """Return a name in quotes if it holds a special character, so that it can be parsed."""
    return '"' + name.replace('"', '""') + '"' if _SPECIAL.search(name) else name


def _parse_names(text: str) -> list[list[str]]:
    """Return the names of each cross, without empty names and crosses."""
    name_lists, names, position = list[list[str]](), list[str](), 0
    while position <= len(text):
        match = _NAME.match(text, position)
        if match is None:
            raise InputError(f"The cross {text!r} has a quote that does not close, or text beside one: {_EXAMPLE}.")
        name = match[2].strip() if match[1] is None else match[1].replace('""', '"')
        names += [name] if name else []
        if match[3] != ",":
            name_lists += [names] if names else []
            names = []
        position = match.end() + (match[3] == "")
    return name_lists
