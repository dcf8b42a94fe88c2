import re
from pathlib import Path

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_the_example_prints_what_it_says(capsys):
    code, printed = re.search(r"```python\n(.*?)```\n```\n(.*?)```", README, re.DOTALL).groups()
    exec(code, {})
    assert capsys.readouterr().out == printed


def test_the_page_on_recipes_runs(capsys, monkeypatch):
    from labeldp.recipes import base

    base.find("auto")  # enters all of them, once: what is entered after this would go with the copy
    monkeypatch.setattr(base, "RECIPES", dict(base.RECIPES))  # the page enters a recipe of its own
    page = (Path(__file__).parent.parent / "docs" / "recipes.md").read_text()
    names: dict[str, object] = {}
    for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(code, names)
    assert capsys.readouterr().out.startswith("Guarantee(epsilon=1.0, delta=1e-06, unit='label') Interval(")
    assert "randres-consensus" in base.RECIPES


def test_the_page_on_teachers_prints_what_it_says(capsys):
    page = (Path(__file__).parent.parent / "docs" / "pate.md").read_text()
    names: dict[str, object] = {}
    for code, printed in re.findall(r"```python\n(.*?)```\n```\n(.*?)```", page, re.DOTALL):
        exec(code, names)
        assert capsys.readouterr().out == printed
    student, rows, digits = (names[name] for name in ("student", "rows", "digits"))
    from labeldp.features import Embeddings

    assert (student.predict(Embeddings(rows)) == digits).mean() > 0.5
