"""Escaping of control characters in text that is printed on a terminal."""

import re

# Control characters except tabs and line ends, marks of writing direction, line separators, and lone surrogates.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def escape_control_characters(text: str) -> str:
    r"""Replace control characters by escape sequences such as \x1b, so that no name can control a terminal."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
