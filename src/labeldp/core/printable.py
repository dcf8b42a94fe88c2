"""Names from files, as they may be shown on a terminal."""

import re

# Control characters but for tabs and line ends, marks that turn the direction of writing, and halves of characters.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def escape_control_characters(text: str) -> str:
    r"""Return a text whose control characters are written out, as \x1b, so that no name can command a terminal."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
