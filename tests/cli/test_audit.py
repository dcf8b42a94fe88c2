import json
from pathlib import Path

import polars as pl
import pytest

HIGH_CONFIDENCE = ("--confidence", 0.999999)  # a sound mechanism must not fail a test by chance
LABELS = ("--label", "income", "--classes", "low,high")


@pytest.fixture(autouse=True)
def _no_processes(monkeypatch):
    """Fresh processes take seconds each: tests/audit/test_noise_repetition.py starts some."""
    monkeypatch.setattr("labeldp.audit.noise_repetition.prints_same_twice", lambda *_: False)


def test_a_mechanism(labeldp):
    code, out, err = labeldp("audit", "--mechanism", "rr", "--epsilon", 1, "--draws", 20_000, *HIGH_CONFIDENCE)
    assert (code, err) == (0, "")
    stated, lower, fresh = out.splitlines()
    assert stated == "RandomizedResponse states epsilon 1."
    assert 0.7 < float(lower.split()[4]) <= 1
    assert lower.endswith(
        "(0.999999 confidence, 20,000 draws on each of two neighboring data sets): "
        "the audit does not contradict the guarantee."
    )
    assert fresh == "Two fresh processes drew different noise."


def test_a_mechanism_as_json(labeldp):
    words = ("--mechanism", "histogram", "--epsilon", 2, "--delta", 1e-5, "--draws", 2_000, *HIGH_CONFIDENCE)
    code, out, err = labeldp("audit", *words, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["kind"], found["mechanism"], found["stated_epsilon"]) == ("mechanism", "GroupHistogram", 2)
    assert found["delta"] == 1e-5
    assert 0 <= found["lower_bound"] <= 2
    assert (found["confidence"], found["draws"], found["holds"], found["seeded"]) == (0.999999, 2_000, True, False)


def test_a_false_claim_has_an_exit_code_of_its_own(labeldp):
    code, out, _ = labeldp("audit", "--mechanism", "immutable", "--epsilon", 0.5, "--draws", 2_000)
    assert code == 1
    assert "ImmutableArgmax states epsilon 0.5." in out
    assert "THE STATED EPSILON IS WRONG" in out


def test_a_constant_does_not_pass(labeldp):
    code, out, err = labeldp("audit", "--mechanism", "rr-max-information", "--epsilon", 1e-7, "--draws", 1_000)
    assert (code, err) == (1, "")
    assert "THE AUDIT SHOWS NOTHING" in out
    assert "does not contradict" not in out


def test_randomized_response_with_a_prior_has_something_to_audit(labeldp):
    code, out, _ = labeldp(
        "audit", "--mechanism", "rr-with-prior", "--epsilon", 0.5, "--draws", 20_000, *HIGH_CONFIDENCE
    )
    assert code == 0
    assert 0.2 < float(out.splitlines()[1].split()[4]) <= 0.5


def test_seeded_noise_is_a_false_claim_too(labeldp, monkeypatch):
    monkeypatch.setattr("labeldp.audit.noise_repetition.prints_same_twice", lambda *_: True)
    code, out, _ = labeldp("audit", "--mechanism", "laplace", "--epsilon", 1, "--draws", 1_000, *HIGH_CONFIDENCE)
    assert code == 1
    assert "IT IS SEEDED" in out


def test_a_run(labeldp, folder):
    train = ("train", "people.csv", *LABELS, "--epsilon", 3, "--recipe", "randres", "--model", "linear", "--epochs", 3)
    assert labeldp(*train, "--out", "run")[0] == 0
    ledger = (folder / "people.csv.ledger").read_bytes()
    code, out, err = labeldp("audit", "run", "people.csv", *HIGH_CONFIDENCE)
    assert (code, err) == (0, "")
    stated, lower, gain = out.splitlines()
    assert stated == "The run states epsilon 3."
    assert lower.startswith("Epsilon is at least ")
    assert "canaries): the audit does not contradict the guarantee." in lower
    assert "% of the labels; from features alone " in gain
    assert "%. Epsilon allows " in gain
    result = json.loads(Path("run/audit.json").read_text())
    assert 0 <= result["lower_bound"] <= 3
    assert (folder / "people.csv.ledger").read_bytes() == ledger  # nothing was spent
    code, _, err = labeldp("audit", "run", "people.csv")
    assert code == 2
    assert "run/audit.json holds an audit of this run: remove it" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "Name a run folder and its table, or a mechanism"),
        (("run",), "Name the table too: labeldp audit run DATA"),
        (("run", "people.csv"), "run is not a run folder"),
        (("--mechanism", "rr"), "Set the epsilon of the mechanism: --epsilon 1"),
        (("--mechanism", "r", "--epsilon", 1), "There is no mechanism 'r' to audit: choose one of rr, rr-top-k"),
        (("run", "--mechanism", "rr"), "RUN is for a run, and --mechanism audits a mechanism"),
        (("--mechanism", "rr", "--epsilon", 1, "--canaries", 9), "--canaries is for a run"),
        (("run", "people.csv", "--draws", 9), "--draws is for a mechanism: name one by --mechanism"),
        (("--mechanism", "rr", "--epsilon", 1, "--draws", 9), "draws must be a whole number from 100"),
        (("--mechanism", "rr", "--epsilon", 1, "--confidence", 2), "confidence must be a number from 0.5"),
        (("--mechanism", "rr", "--epsilon", 1, "--confidence", 0), "confidence must be a number from 0.5"),
        (("--mechanism", "rr", "--epsilon", 1, "--draws", 0), "draws must be a whole number from 100"),
        (("--mechanism", "rr", "--epsilon", 1, "--classes", 0), "classes"),
        (("--mechanism", "gnmax", "--epsilon", 1, "--queries", 0), "queries"),
    ],
)
def test_a_mistake_is_one_sentence(labeldp, words, message):
    code, out, err = labeldp("audit", *words)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1


def test_a_run_on_public_rows_asks_for_them_again(labeldp, folder):
    people = pl.read_csv(folder / "people.csv")
    people.drop("income").write_csv(folder / "others.csv")
    request = ("--label", "income", "--classes", "low,high", "--epsilon", 50, "--delta", 1e-3, "--recipe", "pate")
    how = ("--engine", "here", "--option", "teachers=10", "--epochs", 1, "--model", "linear")
    assert labeldp("train", "people.csv", *request, "--public", "others.csv", *how, "--out", "run")[0] == 0
    code, out, err = labeldp("audit", "run", "people.csv")
    assert (code, out) == (2, "")
    assert "--public" in err
    code, _, err = labeldp("audit", "run", "people.csv", "--public", "others.csv", "--canaries", 20)
    assert code == 0, err
    audit = json.loads((folder / "run" / "audit.json").read_text())
    assert audit["rows"] == 150  # half of the public ones, and no secret one
    assert "half of the public rows replaced them" in " ".join(audit["notes"])
    code, _, err = labeldp("train", "people.csv", *request, "--public", "people.csv", *how, "--out", "again")
    assert (code, "those with the private labels" in err) == (2, True)
