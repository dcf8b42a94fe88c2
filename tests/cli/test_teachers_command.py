import json

import numpy as np
import polars as pl
import pytest

from labeldp.privacy.vault.ledger import Ledger

ASK = ("train", "people.csv", "--label", "income", "--classes", "low,high", "--out", "run", "--delta", "1e-3")
NETWORKS = ("--engine", "here", "--option", "teachers=10", "--epochs", 2, "--model", "linear")


def test_network_teachers_on_an_engine(labeldp, folder):
    options = ("--recipe", "pate-fm", "--option", "teacher_kind=networks", *NETWORKS)
    code, out, err = labeldp(*ASK, "--epsilon", 50, *options)
    assert code == 0
    assert "hardly protected" in err
    assert "Wrote run" in out
    assert not list(folder.glob(".run*"))  # the stored teachers, which are secret, went with the checkpoints


def test_public_rows_give_a_model_that_protects_records(labeldp, folder):
    people = pl.read_csv(folder / "people.csv")
    people.drop("income").with_columns(pl.col("age") + 1).write_csv(folder / "others.csv")
    code, out, _ = labeldp(*ASK, "--epsilon", 50, "--recipe", "pate", "--public", "others.csv", *NETWORKS, "--json")
    assert code == 0
    assert json.loads(out)["recipe"] == "pate"
    assert json.loads((folder / "run/model/model.json").read_text())["guarantee"]["unit"] == "record"
    code, out, _ = labeldp("predict", "run", "people.csv")
    assert code == 0


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--engine", "ray"), "no option 'engine'"),
        (("--public", "people.parquet"), "no use for public rows"),
        (("--recipe", "pate", "--delta", "1e-5", "--public", "people.csv"), "those with the private labels"),
        (("--recipe", "pate", "--public", "absent.csv"), "absent.csv"),
        (("--recipe", "pate-fm", "--option", "teacher_kind=networks", "--engine", "mars"), "no engine 'mars'"),
        (("--recipe", "immutable"), "allow_unproven"),
        (("--recipe", "immutable", "--allow-unproven", "pate"), "the names are immutable"),
    ],
)
def test_what_does_not_go_together_is_said_in_a_sentence(labeldp, folder, monkeypatch, more, message):
    monkeypatch.setattr("labeldp.core.unproven._ALLOWED", set())
    recipe = () if "--recipe" in more else ("--recipe", "randres")
    code, out, err = labeldp(*ASK, "--epsilon", 1, *recipe, *more)
    assert (code, out) == (2, "")
    assert message in err
    assert not (folder / "run").exists()
    ledger = folder / "people.csv.ledger"
    assert not ledger.exists() or not Ledger(ledger).entries()


def test_what_is_not_private_says_so_everywhere(labeldp, folder, monkeypatch):
    monkeypatch.setattr("labeldp.core.unproven._ALLOWED", set())
    unproven = ("--recipe", "immutable", "--allow-unproven", "immutable", "--option", "teachers=10", "--epochs", 2)
    code, out, err = labeldp(*ASK, "--epsilon", 1, *unproven)
    assert code == 0
    assert "NOT differentially private" in err
    assert "epsilon inf of 1" in out
    assert "NOTHING" in (folder / "run/card.html").read_text()
    facts = json.loads((folder / "run/run.json").read_text(), parse_constant=pytest.fail)  # Infinity is no JSON
    assert facts["guarantee"]["epsilon"] == "inf"
    json.loads((folder / "run/ledger.json").read_text(), parse_constant=pytest.fail)
    code, out, _ = labeldp("ledger", "show", "people.csv")
    assert code == 0
    assert "infinite" in out
    assert np.isinf(float(json.loads((folder / "run/model/model.json").read_text())["guarantee"]["epsilon"]))
