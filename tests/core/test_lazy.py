import importlib
import subprocess
import sys

import pytest

from labeldp.core.errors import LabelDPError, MissingExtra
from labeldp.core.lazy import has_torch, lazy_exports, require_torch

SUBPACKAGES = ("accounting", "audit", "data", "learn", "recipes", "representation")
PACKAGES = ["labeldp", *(f"labeldp.{package}" for package in SUBPACKAGES)]


@pytest.mark.parametrize("name", PACKAGES)
def test_every_exported_name_exists_and_is_listed_by_dir(name):
    package = importlib.import_module(name)
    assert package.__all__ == sorted(set(package.__all__))
    for each in package.__all__:
        assert getattr(package, each).__name__ == each
    assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match=f"{name} has no attribute 'nothing'"):
        package.nothing  # noqa: B018


def test_subpackages_are_available_without_an_explicit_import():
    names = "ldp.learn.Supervised.__name__, ldp.recipes.train.__name__, 'representation' in dir(ldp)"
    code = f"import labeldp as ldp; print({names})"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["Supervised", "train", "True"]


def test_importing_packages_loads_no_heavy_dependency():
    code = f"import {', '.join(PACKAGES)}, sys; sys.exit(bool({{'torch', 'pyarrow', 'scipy'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_missing_torch_names_what_to_install(monkeypatch):
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
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["True", "False"]
    require_torch("Nothing")


@pytest.mark.parametrize("absent", [lambda name: None, lambda name: importlib.import_module("no_such_module")])
def test_torch_counts_as_absent_if_find_spec_returns_none_or_raises(monkeypatch, absent):
    monkeypatch.setattr("labeldp.core.lazy.find_spec", absent)
    assert not has_torch()
    with pytest.raises(MissingExtra, match=r"^A network needs torch, .*: pip install 'labeldp\[learn\]'.$"):
        require_torch("A network")
