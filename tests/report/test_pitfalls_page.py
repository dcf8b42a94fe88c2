import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "pitfalls.md").read_text(encoding="utf-8")


def test_the_table_links_to_every_section():
    sections = re.findall(r"^### (.*)$", PAGE, re.MULTILINE)
    anchors = [re.sub(r"[^a-z0-9 -]", "", section.lower()).replace(" ", "-") for section in sections]
    assert re.findall(r"\]\(#(.*?)\)", PAGE) == anchors


def test_every_pitfall_says_what_the_library_does():
    for section in re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:]:
        assert re.search(r"\*\*What\s+labeldp\s+does:\*\*", section), section.splitlines()[0]


def test_the_table_of_guesses_is_what_the_audit_allows():
    from labeldp.core.guarantee import max_guess_accuracy

    lines = re.findall(r"^\| (\d\d) % \|(.*)\|$", PAGE, re.MULTILINE)
    assert len(lines) >= 3
    for line in lines:
        probabilities = [max_guess_accuracy(epsilon, int(line[0]) / 100) for epsilon in (0.1, 0.5, 1, 2, 4)]
        assert [cell.strip() for cell in line[1].split("|")] == [
            f"{100 * probability:.1f} %" for probability in probabilities
        ]
