import importlib
import subprocess
import sys

import pytest

from labeldp.core.errors import LabelDPError, MissingExtra
from labeldp.core.lazy import has_torch, lazy_exports, require_torch

PACKAGES = ["labeldp", *(f"labeldp.{room}" for room in ("audit", "features", "learn", "recipes", "represent", "teach"))]


@pytest.mark.parametrize("name", PACKAGES)
def test_every_name_is_there_and_named_by_dir(name):
    package = importlib.import_module(name)
    assert package.__all__ == sorted(set(package.__all__))
    for each in package.__all__:
        assert getattr(package, each).__name__ == each
    assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match=f"{name} has no attribute 'nothing'"):
        package.nothing  # noqa: B018


def test_rooms_are_there_without_an_import_of_their_own():
    code = (
        "import labeldp as ldp; print(ldp.learn.Supervised.__name__, ldp.recipes.train.__name__, 'teach' in dir(ldp))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["Supervised", "train", "True"]


def test_packages_load_nothing_before_it_is_asked_for():
    code = f"import {', '.join(PACKAGES)}, sys; sys.exit(bool({{'torch', 'pyarrow', 'scipy'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_torch_it_is_said_what_to_install(monkeypatch):
    def absent(name):
        raise ModuleNotFoundError(f"No module named {name}", name="torch")

    monkeypatch.setattr("labeldp.core.lazy.import_module", absent)
    _, get, _ = lazy_exports("labeldp.learn", {"model": ["Model"]})
    with pytest.raises(ImportError, match=r"Model needs torch.*: pip install 'labeldp\[learn\]'") as caught:
        get("Model")
    assert isinstance(caught.value, LabelDPError)
    assert caught.value.name == "torch"


def test_whether_torch_is_installed_is_found_without_importing_it():
    code = "from labeldp.core.lazy import has_torch; import sys; print(has_torch(), 'torch' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["True", "False"]
    require_torch("Nothing")


@pytest.mark.parametrize("absent", [lambda name: None, lambda name: importlib.import_module("no_such_module")])
def test_torch_is_absent_where_it_is_not_found_or_may_not_be_looked_for(monkeypatch, absent):
    monkeypatch.setattr("labeldp.core.lazy.find_spec", absent)
    assert not has_torch()
    with pytest.raises(MissingExtra, match=r"^A network needs torch, .*: pip install 'labeldp\[learn\]'.$"):
        require_torch("A network")
