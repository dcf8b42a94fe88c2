from itertools import pairwise

import pytest

import labeldp as ldp
from labeldp.learn.backbones import build
from labeldp.recipes.registry import get_recipe as find_recipe
from labeldp.reproduce.cells import backbone
from labeldp.reproduce.tables import EXPERIMENTS, get_experiment

NAMES = {
    *("ghazi-table-1", "ghazi-table-2", "ghazi-figure-1a", "ghazi-figure-1b", "antipodes-table-1"),
    *("antipodes-table-2", "tang-table-2", "tang-table-3", "tang-table-4", "tang-table-6", "tang-table-9"),
    "tang-section-6",
}
ROWS = [pytest.param(row, id=f"{e.name}: {row.method}") for e in EXPERIMENTS.values() for row in e.rows]


def test_all_tables_are_there():
    assert set(EXPERIMENTS) == NAMES
    with pytest.raises(ldp.InputError, match="no table 'ghazi': choose one of ghazi-table-1"):
        get_experiment("ghazi")


@pytest.mark.parametrize("row", ROWS)
def test_every_row_can_be_made(row):
    find_recipe(row.recipe).check(None, row.options, delta=1e-5, encoder=row.encoder)
    made = backbone(row.model)
    assert (made((3, 32, 32), 10) if callable(made) else build(made, (3, 32, 32), 10)) is not None


@pytest.mark.parametrize("row", ROWS)
def test_figures_are_percents_that_do_not_fall_as_epsilon_grows(row):
    figures = [figure for _, figure in sorted(row.paper.items()) if figure is not None]
    assert all(1 < figure < 100 for figure in figures)
    assert all(later >= earlier for earlier, later in pairwise(figures))


def test_rows_of_a_table_have_names_of_their_own():
    for experiment in EXPERIMENTS.values():
        assert len({row.method for row in experiment.rows}) == len(experiment.rows)
