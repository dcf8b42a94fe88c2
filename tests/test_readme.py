import re
from pathlib import Path

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_example_prints_the_stated_output(capsys):
    code, printed = re.search(r"```python\n(.*?)```\n```\n(.*?)```", README, re.DOTALL).groups()
    exec(code, {})
    assert capsys.readouterr().out == printed
