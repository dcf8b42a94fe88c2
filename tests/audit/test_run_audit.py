"""A run folder is audited on labels of its own model: the real ones are not even there."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from sklearn.datasets import load_digits

import labeldp as ldp
from labeldp.audit import run_audit as audited
from labeldp.audit.run_audit import AuditConfig, audit_run
from labeldp.privacy.vault.labeled_table import SecretTable
from labeldp.runs.config import TrainConfig
from labeldp.runs.training import train_to_folder as train_run

CLASSES = ",".join(map(str, range(10)))
KEYS = {"format", "version", "created", "recipe", "stated", "trainings", "rows", "lower_bound", "confidence", "holds"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Digits as a table, and one as it would be without its labels."""
    place = tmp_path_factory.mktemp("audit")
    pixels, labels = load_digits(return_X_y=True)
    frame = pl.DataFrame({f"p{column}": pixels[:600, column] for column in range(20, 44)})
    frame.with_columns(digit=pl.Series(labels[:600])).write_parquet(place / "digits.parquet")
    frame.write_parquet(place / "features.parquet")
    return place


@pytest.fixture
def make(place, tmp_path):
    def make(recipe, epsilon=3.0, delta=0.0, **more):
        table = SecretTable.open(place / "digits.parquet", "digit", CLASSES)
        vault = table.vault(epsilon, delta, ledger=tmp_path / f"{recipe}.ledger")
        train_run(table, vault, TrainConfig(epsilon, delta, recipe, device="cpu", **more), tmp_path / recipe)
        return tmp_path / recipe

    return make


def test_an_audit_needs_no_labels_and_is_written_into_the_run(place, make):
    run = make("randres", 4.0, model="mlp", epochs=10)
    before = {path.name for path in run.iterdir()}
    result = audit_run(run, place / "features.parquet", AuditConfig(device="cpu", confidence=1 - 1e-6))
    assert set(result) == KEYS | {"audits", "notes"}
    assert result == json.loads((run / "audit.json").read_text())
    assert {path.name for path in run.iterdir()} == before | {"audit.json"}
    assert result["holds"] is True
    assert 0.5 < result["lower_bound"] <= 4
    one, game, inference = result["audits"]
    assert [one["kind"], game["kind"], inference["kind"]] == ["one run", "canary game", "label inference"]
    assert one["lower_bound"] == result["lower_bound"] == max(one["views"].values())
    assert one["stated_epsilon"] == 4
    assert one["canaries"] == 120  # a fifth of the rows
    assert "lower_bound" not in game  # one bound for one confidence
    assert inference["low"] <= inference["allowed"]
    with pytest.raises(ldp.InputError, match=r"audit\.json holds an audit"):
        audit_run(run, place / "features.parquet")


def test_a_stopped_audit_continues(place, make, monkeypatch):
    run, trained_games, play = make("moments"), [], audited.train_and_score

    def stopping(game, *rest, **more):
        if len(trained_games) == 1:
            trained_games.append(None)
            raise KeyboardInterrupt
        trained_games.append(game)
        return play(game, *rest, **more)

    monkeypatch.setattr(audited, "train_and_score", stopping)
    request = AuditConfig(trainings=3, canaries=50, device="cpu")
    with pytest.raises(KeyboardInterrupt):
        audit_run(run, place / "features.parquet", request)
    assert not (run / "audit.json").exists()
    assert [path.name for path in run.glob(".audit.*")]
    result = audit_run(run, place / "features.parquet", request)
    assert len(trained_games) == 4  # the first, the one that was stopped, and the two that were left
    assert result["audits"][0]["canaries"] == 150
    assert not np.array_equal(trained_games[0].coins, trained_games[2].coins)
    assert not list(run.glob(".audit.*"))


def test_a_stopped_training_goes_on_with_the_noise_that_was_drawn(place, make, monkeypatch):
    run, drawn = make("randres", model="mlp", epochs=2), []
    release = ldp.Vault.release

    def watched(vault, *rest, **more):
        drawn.append(release(vault, *rest, **more).codes)
        if len(drawn) == 1:
            raise KeyboardInterrupt
        return release(vault, *rest, **more)

    monkeypatch.setattr(ldp.Vault, "release", watched)
    with pytest.raises(KeyboardInterrupt):
        audit_run(run, place / "features.parquet", AuditConfig(device="cpu"))
    audit_run(run, place / "features.parquet", AuditConfig(device="cpu"))
    assert np.array_equal(drawn[0], drawn[1])


def test_votes_of_teachers_and_votes_that_are_not_private(place, make):
    run = make("pate-fm", delta=1e-5, epochs=1)
    result = audit_run(run, place / "features.parquet", AuditConfig(device="cpu"))
    assert result["stated"]["delta"] == result["audits"][0]["delta"] == 1e-5
    ldp.allow_unproven("immutable")
    run = make("immutable", epochs=1, options={"teachers": 10})
    result = audit_run(run, place / "features.parquet", AuditConfig(device="cpu", confidence=1 - 1e-6))
    assert result["stated"] == {"epsilon": "inf", "delta": 0.0, "claimed": 3.0}


def test_a_large_delta_allows_few_canaries():
    facts = {"guarantee": {"delta": 1e-4}}
    assert audited._max_canaries(facts, AuditConfig()) == 125
    assert audited._max_canaries(facts, AuditConfig(trainings=5)) == 25
    assert audited._max_canaries({"guarantee": {"delta": 0.0}}, AuditConfig()) == 1000


def test_mistakes_are_named(place, make, tmp_path):
    run = make("moments")
    pl.read_parquet(place / "features.parquet").head(100).write_parquet(tmp_path / "short.parquet")
    with pytest.raises(ldp.InputError, match="has 100 rows and the run was trained on 600"):
        audit_run(run, tmp_path / "short.parquet")
    with pytest.raises(ldp.InputError, match="is not a run folder"):
        audit_run(tmp_path, place / "features.parquet")
    with pytest.raises(ldp.InputError, match="canaries are not between 8 and the 600 rows"):
        audit_run(run, place / "features.parquet", AuditConfig(canaries=700, device="cpu"))
    with pytest.raises(ldp.InputError, match="trainings must be a whole number from 1"):
        AuditConfig(trainings=0)
    with pytest.raises(ldp.InputError, match="confidence must be"):
        AuditConfig(confidence=2.0)
    report = json.loads((run / "run.json").read_text())
    report["guarantee"]["unit"] = "record"
    Path(run / "run.json").write_text(json.dumps(report))
    with pytest.raises(ldp.InputError, match="a table of public rows is needed"):
        audit_run(run, place / "features.parquet")
