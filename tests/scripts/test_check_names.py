import ast
import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts/check_names.py"
spec = importlib.util.spec_from_file_location("check_names", SCRIPT)
check_names = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check_names)


@pytest.mark.parametrize(
    "code",
    [
        "def was_told(): pass",
        "class SurestRows: pass",
        "x = release.told",
        "def f(kinds): pass",
        "f(lesson=1)",
        "import a as polls",
        "try: pass\nexcept E as doubts: pass",
        "match x:\n case [kept, *abreast]: pass",
        "HEARD = 1",
    ],
)
def test_a_forbidden_word_in_an_identifier_is_found(tmp_path, code):
    path = tmp_path / "module.py"
    path.write_text(code)
    assert list(check_names.findings(path))
    assert check_names.main([str(tmp_path)]) == 1


def test_texts_and_longer_words_are_allowed(tmp_path, capsys):
    path = tmp_path / "module.py"
    path.write_text('"""What is told."""\noutlook = "kept"  # heard\nkind = looks_like = retold = 1\n')
    assert check_names.main([str(tmp_path)]) == 0
    assert "No forbidden name in 1 files." in capsys.readouterr().out


def test_every_form_of_a_name_in_the_syntax_tree_is_read():
    names = {name for _, name in check_names.identifiers(ast.parse("async def a(b, *c, d=1, **e): f.g = h(i=1)"))}
    assert names >= set("abcdefghi")
