import re
from pathlib import Path

from labeldp.audit.named import NAMES

PAGE = (Path(__file__).parents[2] / "docs" / "audit.md").read_text()


def test_the_example_runs(capsys):
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(code, {})
    assert re.match(r"0\.[89]\d* True\n|1\.0", capsys.readouterr().out)


def test_every_name_is_there():
    assert all(f"`{name}`" in PAGE for name in NAMES)
