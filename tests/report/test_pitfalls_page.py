import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "pitfalls.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", ["pitfalls", "users"])
def test_the_examples_print_what_they_say(page, capsys):
    names: dict[str, object] = {}
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    found = re.findall(r"```python\n(.*?)```\n```\n(.*?)```", text, re.DOTALL)
    assert len(found) == text.count("```python")
    for code, printed in found:
        exec(code, names)
        assert capsys.readouterr().out == printed


def test_the_table_links_to_every_section():
    sections = re.findall(r"^### (.*)$", PAGE, re.MULTILINE)
    anchors = [re.sub(r"[^a-z0-9 -]", "", section.lower()).replace(" ", "-") for section in sections]
    assert re.findall(r"\]\(#(.*?)\)", PAGE) == anchors


def test_every_pitfall_says_what_the_library_does():
    for section in re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:]:
        assert re.search(r"\*\*What\s+labeldp\s+does:\*\*", section), section.splitlines()[0]


def test_the_table_of_guesses_is_what_the_audit_allows():
    from labeldp.report.card.numbers import best_guess

    for line in re.findall(r"^\| (\d\d) % \|(.*)\|$", PAGE, re.MULTILINE):
        chances = [best_guess(epsilon, int(line[0]) / 100) for epsilon in (0.1, 0.5, 1, 2, 4)]
        assert [cell.strip() for cell in line[1].split("|")] == [f"{100 * chance:.1f} %" for chance in chances]
