import json
import os
import subprocess
import sys

import numpy as np
import polars as pl
import pytest

PEOPLE = pl.DataFrame(
    {"age": np.arange(300) % 50, "job": ["a", "b", "c"] * 100, "income": ["low", "high", "low"] * 100}
)
LABELS = ("--label", "income", "--classes", "low,high")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    PEOPLE.write_csv(tmp_path / "people.csv")
    PEOPLE.write_parquet(tmp_path / "people.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def labeldp(folder, monkeypatch, capsys):
    """Run a command in this process: exit code, output, errors."""
    from labeldp.cli import main

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["labeldp", *map(str, words)])
        with pytest.raises(SystemExit) as done:
            main()
        said = capsys.readouterr()
        return done.value.code or 0, said.out, said.err

    return run


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_privatize(labeldp, folder, kind):
    code, out, _ = labeldp("privatize", f"people.{kind}", *LABELS, "--epsilon", 1, "--out", f"noisy.{kind}")
    assert code == 0
    assert "probability 0.731" in out
    assert "epsilon 1 of 1" in out
    read = pl.read_csv if kind == "csv" else pl.read_parquet
    noisy = read(folder / f"noisy.{kind}")
    assert noisy.drop("income").equals(PEOPLE.drop("income"))
    kept = (noisy["income"] == PEOPLE["income"]).mean()
    assert 0.6 < kept < 0.86
    # The same request again: the same noise, no further cost.
    code, out, _ = labeldp("privatize", f"people.{kind}", *LABELS, "--epsilon", 1, "--out", f"again.{kind}", "--json")
    assert json.loads(out)["guarantee"]["epsilon"] == 1
    assert read(folder / f"again.{kind}").equals(noisy)


def test_the_guarantee_travels_with_a_parquet_file(labeldp, folder):
    import pyarrow.parquet as pq

    labeldp("privatize", "people.parquet", *LABELS, "--epsilon", 1, "--out", "noisy.parquet")
    meta = pq.read_schema(folder / "noisy.parquet").metadata
    assert json.loads(meta[b"labeldp.guarantee"])["epsilon"] == 1


def test_train_predict_and_ledger(labeldp, folder):
    code, out, _ = labeldp("train", "people.csv", *LABELS, "--epsilon", 2, "--out", "run")
    assert code == 0
    assert "measured privately on 60 held-out rows" in out
    code, out, _ = labeldp("predict", "run", "people.csv")
    assert out.splitlines()[0] == "prediction,p(low),p(high)"
    assert len(out.splitlines()) == 301
    code, _, _ = labeldp("predict", "run", "people.parquet", "--out", "said.parquet")
    assert pl.read_parquet(folder / "said.parquet").height == 300
    code, out, _ = labeldp("ledger", "show", "people.csv")
    assert "RandomizedResponse" in out
    assert "GroupHistogram" in out
    assert "spent epsilon 2 " in " ".join(out.split())
    code, out, _ = labeldp("ledger", "show", "people.csv.ledger", "--json")
    assert json.loads(out)["spent"] == {"epsilon": 2.0, "delta": 0.0, "exact": True}


BAD = {
    "no file": (["privatize", "absent.csv", *LABELS, "--epsilon", 1, "--out", "o.csv"], "There is no file"),
    "no column": (
        ["privatize", "people.csv", "--label", "x", "--classes", "a,b", "--epsilon", 1, "--out", "o.csv"],
        "no column 'x'",
    ),
    "outside": (
        ["privatize", "people.csv", "--label", "income", "--classes", "low,mid", "--epsilon", 1, "--out", "o.csv"],
        "outside the declared classes, first in row 1",
    ),
    "epsilon 0": (["privatize", "people.csv", *LABELS, "--epsilon", 0, "--out", "o.csv"], "epsilon must be"),
    "epsilon nan": (["train", "people.csv", *LABELS, "--epsilon", "nan", "--out", "o"], "epsilon must be"),
    "epsilon inf": (["train", "people.csv", *LABELS, "--epsilon", "inf", "--out", "o"], "epsilon must be"),
    "out exists": (["privatize", "people.csv", *LABELS, "--epsilon", 1, "--out", "people.parquet"], "exists"),
    "other format": (["privatize", "people.csv", *LABELS, "--epsilon", 1, "--out", "o.parquet"], "must end in .csv"),
    "no folder": (["train", "people.csv", *LABELS, "--epsilon", 1, "--out", "absent/run"], "no folder"),
    "no run": (["predict", "absent", "people.csv"], "not a run folder"),
    "no ledger": (["ledger", "show", "absent"], "no ledger"),
    "a folder": (["ledger", "show", "."], "is a folder"),
    "no ledger yet": (["ledger", "show", "people.csv"], "nothing has been spent on it yet"),
    "no such option": (["train", "people.csv", "--epsilonn", 1], "No such option"),
    "not a number": (["train", "people.csv", *LABELS, "--epsilon", "x", "--out", "o"], "Invalid value for '--epsilon'"),
    "no such command": (["trein"], "No such command"),
    "not a ledger": (
        ["train", "people.csv", *LABELS, "--epsilon", 1, "--out", "o", "--ledger", "people.parquet"],
        "not a ledger",
    ),
    "budget below": (
        ["privatize", "people.csv", *LABELS, "--epsilon", 2, "--budget", 1, "--out", "o.csv"],
        "--budget sets the total",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence_and_leaves_nothing(labeldp, folder, case):
    before = {p.name for p in folder.iterdir()}
    words, expected = BAD[case]
    code, out, err = labeldp(*words)
    assert code == 2
    assert expected in err
    assert err.startswith("labeldp: ")
    assert err.count("\n") == 1
    assert out == ""
    assert not any(p.name.startswith((".", "o")) for p in folder.iterdir())
    left = {name for name in {p.name for p in folder.iterdir()} - before if "ledger" not in name}
    assert not left
    for path in folder.glob("*.ledger"):
        _, out, _ = labeldp("ledger", "show", path, "--json")
        assert json.loads(out)["spent"]["epsilon"] == 0


def test_a_missing_label_is_an_error_unless_declared_public(labeldp, folder):
    PEOPLE.with_columns(income=pl.when(pl.col("age") == 3).then(None).otherwise("income")).write_csv("holes.csv")
    code, _, err = labeldp("privatize", "holes.csv", *LABELS, "--epsilon", 1, "--out", "o.csv")
    assert code == 2
    assert "A label is missing, first in row 3" in err
    code, _, _ = labeldp("privatize", "holes.csv", *LABELS, "--epsilon", 1, "--out", "o.csv", "--missing-public")
    assert code == 0
    assert pl.read_csv("o.csv")["income"].null_count() == 6


def test_an_interrupt_is_one_sentence_and_leaves_nothing(labeldp, folder, monkeypatch):
    from labeldp.files import TableFile

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(TableFile, "rewrite", interrupt)
    code, out, err = labeldp("privatize", "people.csv", *LABELS, "--epsilon", 1, "--out", "o.csv")
    assert (code, out) == (130, "")
    assert err.startswith("labeldp: interrupted")
    assert not (folder / "o.csv").exists()


def test_version_and_help(labeldp):
    import labeldp as package

    assert labeldp("--version")[1] == f"labeldp {package.__version__}\n"
    assert "privatize" in labeldp()[1]


def test_help_does_not_load_heavy_modules():
    code = "import sys; import labeldp.cli; print([m for m in ('numpy', 'pyarrow', 'sklearn') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_module_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "labeldp", "--help"], capture_output=True, text=True, env=os.environ | {"COLUMNS": "100"}
    )
    assert done.returncode == 0
    assert "privatize" in done.stdout
