import json

import numpy as np
import polars as pl
import pytest

import labeldp as ldp
from labeldp import runs
from labeldp.datasets import SecretTable
from labeldp.releases import NoisyCounts


@pytest.fixture
def people(tmp_path):
    generator = np.random.default_rng(0)
    x = generator.normal(size=2000)
    frame = pl.DataFrame(
        {
            "age": pl.Series(x).scatter([3], [None]),
            "job": np.where(x > 1, "chief", "clerk"),
            "city": pl.Series(["A", None] * 1000),
            "rich": x + generator.normal(size=2000) * 0.3 > 0,
        }
    )
    frame.write_parquet(tmp_path / "people.parquet")
    return SecretTable.open(tmp_path / "people.parquet", "rich", "false,true")


def test_a_run_can_be_read_and_used(people, tmp_path):
    report = runs.train(people, people.vault(1.0), 1.0, tmp_path / "run")
    assert report == json.loads((tmp_path / "run" / "run.json").read_text())
    assert report["guarantee"]["epsilon"] == 1.0
    assert report["features"] == ["age", "job", "city"]
    frame = pl.read_parquet(people.file.path)
    predicted = runs.predict(tmp_path / "run", people.file.path)
    right = (predicted["prediction"] == frame["rich"]).mean()
    assert right > 0.85
    assert abs(report["estimate"]["accuracy"] - right) < 0.09  # five deviations
    assert report["estimate"]["low"] < report["estimate"]["accuracy"] < report["estimate"]["high"]
    assert np.allclose(predicted["p(False)"] + predicted["p(True)"], 1)
    ledger = json.loads((tmp_path / "run" / "ledger.json").read_text())
    assert [e["mechanism"] for e in ledger] == ["RandomizedResponse", "GroupHistogram"]
    assert [e["released"] for e in ledger] == [1600, 400]


def test_training_again_adds_up(people, tmp_path):
    runs.train(people, people.vault(0.5, budget=2.0), 0.5, tmp_path / "a")
    report = runs.train(people, people.vault(1.0, budget=2.0), 1.0, tmp_path / "b")
    assert report["guarantee"]["epsilon"] == 1.5
    with pytest.raises(ldp.BudgetExceeded):
        runs.train(people, people.vault(1.0), 1.0, tmp_path / "c", seed=1)
    assert not (tmp_path / "c").exists()


def test_new_rows_may_hold_what_training_never_saw(people, tmp_path):
    runs.train(people, people.vault(1.0), 1.0, tmp_path / "run")
    pl.DataFrame({"city": ["Z"], "job": [None], "age": [0.1]}).write_csv(tmp_path / "new.csv")
    assert runs.predict(tmp_path / "run", tmp_path / "new.csv").height == 1


def test_bad_input_to_predict(people, tmp_path):
    runs.train(people, people.vault(1.0), 1.0, tmp_path / "run")
    pl.DataFrame({"age": [1.0], "job": ["x"]}).write_parquet(tmp_path / "short.parquet")
    with pytest.raises(ldp.InputError, match="lacks the column 'city'"):
        runs.predict(tmp_path / "run", tmp_path / "short.parquet")
    pl.DataFrame({"age": ["old"], "job": ["x"], "city": ["A"]}).write_parquet(tmp_path / "text.parquet")
    with pytest.raises(ldp.InputError, match="other types"):
        runs.predict(tmp_path / "run", tmp_path / "text.parquet")
    with pytest.raises(ldp.InputError, match="not a run folder"):
        runs.predict(tmp_path, people.file.path)
    (tmp_path / "run" / "model.skops").write_bytes(b"nonsense")
    with pytest.raises(ldp.InputError, match="damaged"):
        runs.predict(tmp_path / "run", people.file.path)


@pytest.mark.parametrize(("accuracy", "epsilon"), [(0.8, 0.5), (0.97, 0.2), (0.6, 4.0)])
def test_the_interval_covers_the_truth(accuracy, epsilon):
    generator = np.random.default_rng(0)
    space, covered = ldp.LabelSpace([0, 1, 2]), []
    for _ in range(400):
        labels = generator.integers(0, 3, 500)
        predicted = np.where(generator.random(500) < accuracy, labels, (labels + 1) % 3)
        counts = ldp.Vault(labels, space, ldp.Budget(epsilon)).release(ldp.GroupHistogram(predicted, epsilon))
        assert isinstance(counts, NoisyCounts)
        estimate = runs.estimate_accuracy(counts)
        covered.append(estimate.low <= accuracy <= estimate.high)
    assert 0.90 < np.mean(covered) < 0.995  # 95 %, and four deviations of 400 repetitions


def test_the_label_column_is_never_parsed_by_the_learning_side(tmp_path):
    lines = [f"{i},{'0' if i < 150 else 'SECRET'}" for i in range(200)]
    (tmp_path / "t.csv").write_text("x,y\n" + "\n".join(lines) + "\n")
    table = SecretTable.open(tmp_path / "t.csv", "y", "0,SECRET")
    runs.train(table, table.vault(1.0), 1.0, tmp_path / "run")


def test_lines_that_are_no_rows_are_noticed_before_anything_is_spent(tmp_path):
    (tmp_path / "t.csv").write_text("x,z,y\n" + "1,2,no\n" * 30 + "\n" + "2,2,yes\n" * 30)
    table = SecretTable.open(tmp_path / "t.csv", "y", "no,yes")
    vault = table.vault(1.0)
    with pytest.raises(ldp.InputError, match="blank lines"):
        runs.train(table, vault, 1.0, tmp_path / "run")
    assert vault.guarantee().epsilon == 0
