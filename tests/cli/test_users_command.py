import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

LABELS = ("--label", "income", "--classes", "low,high")
USERS = ("--user-column", "person")


@pytest.fixture
def visits(folder):
    """400 rows of 250 people: 100 own one, 150 own two."""
    owner = np.concatenate([np.arange(250), np.arange(150)])
    generator = np.random.default_rng(0)
    x = generator.normal(size=(400, 3))
    frame = pl.DataFrame({"a": x[:, 0], "b": x[:, 1], "person": [f"p{o}" for o in owner], "c": x[:, 2]})
    frame = frame.with_columns(pl.Series("income", np.where(x[:, 0] > 0, "high", "low")))
    frame.write_csv("visits.csv")
    frame.write_parquet("visits.parquet")
    return frame


def run_of(folder):
    return json.loads(Path(folder, "run.json").read_text())


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_train_for_users_and_audit(labeldp, visits, kind):
    data = f"visits.{kind}"
    words = ("train", data, *LABELS, *USERS, "--epsilon", 4, "--recipe", "randres", "--model", "logistic")
    code, out, err = labeldp(*words, "--labels-per-user", 2, "--out", "run")
    assert code == 0
    assert "measured privately on 25 held-out rows" in out
    assert "Each user has spent epsilon 4 of 4 so far." in out
    assert err == (
        "Note: at most 2 labels were used of each of 250 users, and no row was dropped. Each label in the training "
        "has epsilon 2 by itself.\n"
    )
    report = run_of("run")
    assert (report["guarantee"]["epsilon"], report["guarantee"]["unit"]) == (4.0, "user")
    assert report["users"]["column"] == "person"
    assert report["users"]["label"]["epsilon"] == 2.0
    assert json.loads(Path("run/features.json").read_text())["columns"] == ["a", "b", "c"]
    card = Path("run/card.md").read_text()
    assert "At most 2 labels of each user took part, and no row was dropped." in card
    assert "The guarantee of a single label in the training has epsilon 2." in card
    assert "| Users | 250, who own 400 rows of the training |" in card
    code, out, _ = labeldp("predict", "run", data)
    assert (code, len(out.splitlines())) == (0, 401)
    code, out, _ = labeldp("audit", "run", data, "--json", "--device", "cpu")
    assert code == 0
    audited = json.loads(out)
    assert audited["stated"]["epsilon"] == 4.0
    assert audited["audits"][0]["canaries"] == 50  # a fifth of the users
    assert any("A canary is a user" in note for note in audited["notes"])


def test_surplus_rows_are_dropped_and_counted(labeldp, visits):
    words = ("train", "visits.csv", *LABELS, *USERS, "--epsilon", 1, "--recipe", "moments", "--out", "run")
    code, _, err = labeldp(*words, "--labels-per-user", 1)
    assert code == 0
    assert "at most 1 label was used of each of 250 users, and 150 of 400 rows were dropped at random" in err
    about = run_of("run")["users"]
    assert (about["rows"], about["dropped"], about["label"]["epsilon"]) == (250, 150, 1.0)
    assert "150 of 400 rows were dropped at random" in Path("run/card.md").read_text()


def test_json_says_so_without_a_note(labeldp, visits):
    words = ("train", "visits.csv", *LABELS, *USERS, "--epsilon", 1, "--recipe", "moments", "--out", "run")
    code, out, err = labeldp(*words, "--labels-per-user", 1, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["users"]["dropped"] == 150


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (USERS, "A user owns up to 2 rows: say by labels_per_user .* Of 400 rows, 1 keeps 250, and 2 keeps all"),
        (("--user-column", "income"), "The label cannot own its own row"),
        (("--user-column", "nobody"), "has no column 'nobody'"),
        (("--labels-per-user", 2), "labels_per_user is for users"),
    ],
)
@pytest.mark.parametrize("command", ["train", "privatize"])
def test_what_is_wrong_is_said_and_leaves_nothing_behind(labeldp, visits, command, more, message):
    out_name = "o" if command == "train" else "o.csv"
    code, _, err = labeldp(command, "visits.csv", *LABELS, "--epsilon", 1, *more, "--out", out_name)
    assert code == 2
    assert re.search(message, err.replace("\n", " "))
    assert not Path("visits.csv.ledger").exists()
    assert not Path(out_name).exists()


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_row_without_a_user_is_named(labeldp, visits, kind):
    frame = visits.with_columns(person=pl.when(pl.int_range(pl.len()) == 17).then(None).otherwise(pl.col("person")))
    getattr(frame, f"write_{kind}")(f"gap.{kind}")
    words = ("train", f"gap.{kind}", *LABELS, *USERS, "--labels-per-user", 1, "--epsilon", 1, "--out", "o")
    code, _, err = labeldp(*words)
    assert code == 2
    assert "Row 17 (rows count from 0) has no user in column 'person'" in err


def test_numbers_and_categories_name_users_too(labeldp, visits):
    number = visits.with_columns(person=pl.col("person").str.slice(1).cast(pl.Int64))
    number.write_parquet("number.parquet")
    visits.with_columns(person=pl.col("person").cast(pl.Categorical)).write_parquet("category.parquet")
    for name in ("number", "category"):
        words = ("train", f"{name}.parquet", *LABELS, *USERS, "--labels-per-user", 1, "--epsilon", 1, "--json")
        code, out, _ = labeldp(*words, "--recipe", "moments", "--out", name)
        assert code == 0
        assert json.loads(out)["users"]["dropped"] == 150


def test_a_ledger_of_users_is_one_of_users(labeldp, visits):
    words = ("train", "visits.csv", *LABELS, "--epsilon", 1, "--budget", 9, "--recipe", "moments")
    assert labeldp(*words, *USERS, "--labels-per-user", 1, "--out", "one")[0] == 0
    code, _, err = labeldp(*words, "--out", "two")
    assert code == 2
    assert "protects each user" in err
    assert labeldp(*words, *USERS, "--labels-per-user", 2, "--seed", 4, "--out", "three")[0] == 0


def test_privatize_for_users(labeldp, visits):
    words = ("privatize", "visits.csv", *LABELS, *USERS, "--epsilon", 2, "--labels-per-user", 1)
    code, out, _ = labeldp(*words, "--out", "noisy.csv")
    assert code == 0
    assert "400 rows, of which 150 have no label (labels per user: 1)." in out
    assert "probability 0.881; each user has now spent epsilon 2 of 2" in out
    noisy = pl.read_csv("noisy.csv")
    assert noisy["income"].null_count() == 150
    assert noisy.filter(pl.col("income").is_not_null())["person"].n_unique() == 250
    code, out, _ = labeldp("privatize", "visits.parquet", *words[2:-1], 2, "--out", "n.parquet", "--json")
    assert code == 0
    assert json.loads(out)["unchanged"] == pytest.approx(0.7311, abs=1e-4)  # two labels share epsilon 2


def test_compare_for_users(labeldp, visits):
    words = ("compare", "visits.csv", *LABELS, *USERS, "--labels-per-user", 2, "--recipes", "moments")
    code, out, err = labeldp(*words, "--epsilons", "1,2", "--budget", 3, "--out", "c", "--json")
    assert code == 0
    assert [cell["measured"] for cell in json.loads(out)["cells"]] == ["privately"] * 2
    assert "cost each user at most epsilon 3" in err
    Path("visits.csv.ledger").unlink()
    code, out, _ = labeldp(*words, "--epsilons", 20, "--labels-public", "--out", "d", "--json")
    assert code == 0
    assert json.loads(out)["cells"][0]["accuracy"] > 0.7


def test_rows_without_a_label_are_nobodys_surplus(labeldp, visits):
    frame = visits.with_columns(income=pl.when(pl.int_range(pl.len()) >= 250).then(None).otherwise(pl.col("income")))
    frame.write_parquet("gaps.parquet")  # now everybody has one label
    words = ("train", "gaps.parquet", *LABELS, *USERS, "--missing-public", "--epsilon", 1, "--recipe", "moments")
    code, out, _ = labeldp(*words, "--out", "run", "--json")
    assert code == 0
    about = json.loads(out)["users"]
    assert (about["labels_per_user"], about["rows"], about["dropped"]) == (1, 250, 0)
