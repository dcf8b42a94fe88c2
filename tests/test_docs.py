"""Every example in the documents runs and prints the output that the document states."""

import re
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted(path for path in (ROOT / "docs").glob("*.md") if "```python" in path.read_text(encoding="utf-8"))
# The output of these pages depends on drawn noise: patterns of the fixed parts.
VARYING = {
    "audit": r"[01]\.\d+ True\nGuarantee\(epsilon=1\.0, delta=0\.0, unit='label'\) .*\nTrue\n",
    "learning": r"Supervised 0\.\d+\nAugDescent 0\.[89]\d+\n",
    "recipes": r"Guarantee\(epsilon=1\.0, delta=1e-06, unit='label'\) Interval\(.*",
}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_examples_print_the_stated_output(page, capsys, monkeypatch, tmp_path):
    from labeldp.recipes import registry

    registry.get_recipe("auto")  # registers all recipes before the copy is made
    monkeypatch.setattr(registry, "RECIPES", dict(registry.RECIPES))  # a page registers its own recipe
    monkeypatch.chdir(tmp_path)
    text, names = page.read_text(encoding="utf-8"), dict[str, object]()
    blocks = re.findall(r"```python\n(.*?)```(?:\n```\n(.*?)```)?", text, re.DOTALL)
    assert len(blocks) == text.count("```python")
    all_output = ""
    for code, printed in blocks:
        with warnings.catch_warnings(action="ignore"):
            exec(code, names)
        all_output += (output := capsys.readouterr().out)
        if page.stem not in VARYING:
            assert output == printed
        assert bool(output) >= bool(printed)
    assert re.fullmatch(VARYING.get(page.stem, ".*"), all_output, re.DOTALL)


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda path: path.stem
)
def test_links_have_a_target(page):
    text = page.read_text(encoding="utf-8")
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", text):
        other = page if not target else page.parent / target
        assert other.exists(), target
        if anchor:
            titles = re.findall(r"^#+ (.*)$", other.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles}, anchor
