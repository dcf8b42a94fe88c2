import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import labeldp.reproduce.cells
from labeldp.learn import Supervised, Training
from labeldp.learn.backbones import build
from labeldp.report.reproduction import print_reproduction
from labeldp.reproduce import run
from labeldp.reproduce.cells import CellConfig, select_cells
from labeldp.reproduce.tables import EXPERIMENTS


def trial(folder, **more):
    return CellConfig(folder, "cpu", epochs=1, model="linear", **more)


def test_cells_are_trained_once_and_shown_beside_the_paper(cifar, tmp_path):
    experiment = EXPERIMENTS["ghazi-table-1"]
    data = run.read_dataset(experiment, cifar, "cpu")
    assert (len(data.train), len(data.test)) == (600, 120)
    cells = select_cells(experiment, 2, {1.0, 8.0}, {"LP-1ST"})
    messages = []
    lines = run.fill_table(experiment, cells, data, trial(tmp_path), messages.append)
    assert [(line["epsilon"], line["epsilon spent"]) for line in lines] == [(1.0, 1.0), (8.0, 8.0)] * 2
    assert "1 of 4: LP-1ST, epsilon 1, seed 0" in messages
    assert not list((tmp_path / "unfinished").iterdir())
    again = run.fill_table(experiment, cells, data, trial(tmp_path), messages.append)
    assert again == lines
    assert len((tmp_path / "ghazi-table-1.jsonl").read_text().splitlines()) == 4
    table = {
        (line["method"], line["epsilon"]): line
        for line in run.compare_with_paper(experiment, tmp_path / "ghazi-table-1.jsonl")
    }
    assert len(table) == 12
    first = table["LP-1ST", 1.0]
    ours = [line["accuracy"] for line in lines if line["epsilon"] == 1.0]
    assert first["ours"] == pytest.approx(np.mean(ours))
    assert first["difference"] == pytest.approx(np.mean(ours) - 59.96)
    assert first["seeds"] == 2
    assert table["LP-2ST", 3.0]["seeds"] == 0


def test_a_cell_that_was_stopped_goes_on_with_the_same_release(cifar, tmp_path, monkeypatch):
    experiment = EXPERIMENTS["ghazi-table-1"]
    data = run.read_dataset(experiment, cifar, "cpu")
    cells, observed = select_cells(experiment, 1, {2.0}, {"LP-1ST"}), []
    fit = Supervised.fit

    def stop(self, features, release, start=None):
        observed.append(release.labels())
        if len(observed) == 1:
            raise KeyboardInterrupt
        return fit(self, features, release, start)

    monkeypatch.setattr(Supervised, "fit", stop)
    with pytest.raises(KeyboardInterrupt):
        run.fill_table(experiment, cells, data, trial(tmp_path))
    run.fill_table(experiment, cells, data, trial(tmp_path))
    assert np.array_equal(*observed)


FIRST = {}  # every recipe once, in the first table that has it; and once on a hundred classes
for experiment in EXPERIMENTS.values():
    for row in experiment.rows:
        FIRST.setdefault(
            (row.recipe, row.measures) if experiment.data == "cifar10" else experiment.data, (experiment, row)
        )


@pytest.mark.parametrize(("experiment", "row"), FIRST.values(), ids=map(str, FIRST))
def test_every_recipe_of_the_tables_runs_on_a_sample(cifar, tmp_path, experiment, row, encoder):
    data = run.read_dataset(experiment, cifar, "cpu", max_rows=120)
    row = replace(row, options=_small(row.options))
    epsilon = max(row.paper)
    cells = select_cells(replace(experiment, rows=(row,)), 1, {epsilon}, None)
    (line,) = run.fill_table(experiment, cells, data, trial(tmp_path, encoder=encoder))
    assert (line["method"], line["epsilon"]) == (row.method, epsilon)
    assert 0 <= line["accuracy"] <= 100
    assert line["epsilon spent"] <= epsilon


class Repeats:
    """A model that says of a row what was released of it."""

    def __init__(self, release):
        self._released = release.labels()

    def predict_proba(self, pictures):
        return np.eye(10)[self._released] if len(pictures) == len(self._released) else np.full((len(pictures), 10), 0.1)

    def predict(self, pictures):
        return self.predict_proba(pictures).argmax(axis=1)


def test_a_row_with_an_audited_epsilon_is_attacked(cifar, tmp_path, monkeypatch, capsys):
    """At epsilon 8 most released labels are those of the vault: wrong ones identify which of two they were."""
    experiment = EXPERIMENTS["antipodes-table-1"]
    data = run.read_dataset(experiment, cifar, "cpu")
    learn = labeldp.reproduce.cells.train_recipe

    def by_heart(*words, **more):
        trained = learn(*words, **more)
        return replace(trained, model=Repeats(trained.releases[0]))

    monkeypatch.setattr("labeldp.reproduce.cells.train_recipe", by_heart)
    (line,) = run.fill_table(experiment, select_cells(experiment, 1, {8.0}, {"ALIBI"}), data, trial(tmp_path))
    low, high = line["audited"]
    assert 1.5 < low <= 8
    assert high is None or high > low
    lines = run.compare_with_paper(experiment, tmp_path / "antipodes-table-1.jsonl")
    found = next(each for each in lines if (each["method"], each["epsilon"]) == ("ALIBI", 8.0))
    assert found["paper audited"] == (2.9, 4.0)
    assert found["audited"] == [line["audited"]]
    print_reproduction("Both", lines)
    assert f"{low:.1f}-" in capsys.readouterr().out


def _small(options):
    """SCAN clusters pictures by a network of its own, which takes its time: k-means will do on a sample."""
    return {name: "kmeans" if value == "scan" else value for name, value in options.items()}


@pytest.fixture(scope="session")
def encoder(cifar):
    from labeldp.representation.contrastive import SimCLR

    pictures = run.read_dataset(EXPERIMENTS["ghazi-table-1"], cifar, "cpu", max_rows=200).train
    return SimCLR(partial(build, "cnn", width=8), Training(epochs=1, batch_size=64, device="cpu")).fit(pictures)


def test_the_encoder_is_made_once(cifar, tmp_path, monkeypatch):
    data = run.read_dataset(EXPERIMENTS["tang-table-6"], cifar, "cpu", max_rows=8)
    setting = CellConfig(tmp_path, "cpu", epochs=1, model=partial(build, "resnet18", width=4))
    first = run.train_or_load_encoder(data, setting, lambda message: None)
    monkeypatch.setattr("labeldp.reproduce.run.train_two_encoders", None)
    again = run.train_or_load_encoder(data, setting, lambda message: None)
    assert np.array_equal(first.embed(data.test), again.embed(data.test))


def test_a_line_of_results_is_one_json_object(cifar, tmp_path):
    experiment = EXPERIMENTS["tang-table-2"]
    data = run.read_dataset(experiment, cifar, "cpu")
    run.fill_table(experiment, select_cells(experiment, 1, {4.0}, {"RandRes"}), data, trial(tmp_path))
    line = json.loads((tmp_path / "tang-table-2.jsonl").read_text())
    assert line["accuracy"] == pytest.approx(85.9, abs=6)  # of the labels that randomized response releases
