import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "ratings.md").read_text()


def test_the_example_prints_what_it_says(capsys):
    found = re.findall(r"```python\n(.*?)```\n```\n(.*?)```", PAGE, re.DOTALL)
    assert len(found) == PAGE.count("```python") == 1
    for code, printed in found:
        exec(code, {})
        assert capsys.readouterr().out == printed
