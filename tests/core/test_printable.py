import pytest

from labeldp.core.printable import escape_control_characters


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("a\x07b\rc\x00", r"a\x07b\rc\x00"),
        ("\x9b31m\x7f", r"\x9b31m\x7f"),
        ("abc\u202ecba", r"abc\u202ecba"),
        ("file\udcff", r"file\udcff"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("Straße, 北京, \U0001f468\u200d\U0001f469", "Straße, 北京, \U0001f468\u200d\U0001f469"),
    ],
)
def test_only_what_commands_a_terminal_is_written_out(text, shown):
    assert escape_control_characters(text) == shown
