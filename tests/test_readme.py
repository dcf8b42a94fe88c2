import re
from pathlib import Path

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_the_example_prints_what_it_says(capsys):
    code, printed = re.search(r"```python\n(.*?)```\n```\n(.*?)```", README, re.DOTALL).groups()
    exec(code, {})
    assert capsys.readouterr().out == printed
