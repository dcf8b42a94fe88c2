"""The architecture page names the packages that exist, and the modules through which calls really pass."""

import re
import sys
from pathlib import Path

import numpy as np
import polars as pl

import labeldp as ldp

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/architecture.md").read_text()
# Random bits, exact arithmetic of probabilities, accounting and storage: the page describes each as a whole.
NOT_COUNTED = ("privacy.noise", "core.exact_real", "accounting", "releases.storage")
NOT_COUNTED += tuple(f"privacy.vault.{name}" for name in ("ledger", "chain", "entries", "schema", "thread_lock"))


def section(title):
    return re.search(rf"## {title}\n(.*?)(?=\n## |\Z)", PAGE, re.DOTALL)[1]


def modules_called(function):
    """Return the modules of labeldp whose functions run, by the interpreter's own account."""
    modules = set()

    def note(frame, event, argument):
        if event == "call":
            modules.add(frame.f_globals.get("__name__", ""))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(before)
    return {name.removeprefix("labeldp.") for name in modules if name.startswith("labeldp.")}


def test_every_package_is_described():
    described = set(re.findall(r"^\| `([\w/]+)` \|", section("Packages"), re.MULTILINE))
    source = ROOT / "src/labeldp"
    assert described == {str(path.parent.relative_to(source)) for path in source.glob("*/**/__init__.py")}


def test_a_release_passes_the_modules_that_the_page_lists():
    rows = re.findall(r"^\| \d+ \| `([\w.]+)` \|", section("`vault.release`"), re.MULTILINE)
    assert rows
    vaults = [ldp.Vault(["no", "yes"] * 20, ldp.LabelSpace(["no", "yes"]), ldp.Budget(1.0)) for _ in range(2)]
    mechanism = ldp.RandomizedResponse(1.0)
    vaults[0].release(mechanism)  # imports that happen at first use
    called = modules_called(lambda: vaults[1].release(mechanism))
    assert set(rows) == {name for name in called if not name.startswith(NOT_COUNTED)}
    assert len(rows) <= 8


def test_a_training_passes_the_modules_that_the_page_lists(tmp_path, monkeypatch):
    from labeldp.cli.train import train

    monkeypatch.chdir(tmp_path)
    values = np.arange(400) % 7
    pl.DataFrame({"x": values, "ill": np.where(values > 3, "yes", "no")}).write_csv("people.csv")
    listed = re.findall(r"^\| \d+ \| `([\w.*]+)` \|", section("From `labeldp train` to `card.html`"), re.MULTILINE)
    called = modules_called(
        lambda: train(Path("people.csv"), label="ill", classes="no,yes", epsilon=2.0, recipe="moments", out=Path("run"))
    )
    assert (tmp_path / "run/card.html").is_file()
    packages = {name.rpartition(".")[0] for name in called}
    assert [name for name in listed if not {name, name.removesuffix(".*")} & (called | packages)] == []
