import math

import pytest
from matplotlib.image import imread

from labeldp.report.comparison import print_comparison
from labeldp.report.plots import AuditPoint, Point, plot_accuracy_by_epsilon, plot_stated_and_audited


def assert_large(path):
    height, width = imread(path).shape[:2]
    assert height > 300
    assert width > 500


@pytest.mark.parametrize("count", [1, 10])
def test_a_plot_of_any_number_of_curves(tmp_path, count):
    curves = {f"recipe {i}": [Point(1.0, 0.8, 0.7, 0.9), Point(0.5, 0.6, 0.5, 0.7)] for i in range(count)}
    plot_accuracy_by_epsilon(curves, tmp_path / "plot.png", "Title", non_private_accuracy=0.95)
    assert_large(tmp_path / "plot.png")


def test_a_single_point_and_an_estimate_outside_its_interval_can_be_drawn(tmp_path):
    plot_accuracy_by_epsilon({"a": [Point(1.0, 0.8, 0.85, 0.75)]}, tmp_path / "plot.png", "Title")
    assert (tmp_path / "plot.png").stat().st_size > 0


def test_a_table_has_a_row_for_each_recipe_and_a_column_for_each_epsilon(capsys):
    curves = {"auto": [Point(1.0, 0.8, 0.7, 0.9), Point(2.0, 0.9, 0.85, 0.95)], "randres": [Point(2.0, 0.7, 0.6, 0.8)]}
    print_comparison(curves, "Accuracy")
    out = capsys.readouterr().out
    assert "epsilon 1" in out
    assert "80.0% ± 10.0%" in out
    line = next(line for line in out.splitlines() if "randres" in line)
    assert line.split() == ["randres", "-", "70.0%", "±", "10.0%"]


def test_a_table_without_any_measured_cell_can_be_printed(capsys):
    print_comparison({"auto": []}, "Accuracy")
    assert "auto" in capsys.readouterr().out


def test_stated_and_audited_epsilons_of_what_is_private_and_what_is_not(tmp_path):
    curves = {"randres": [AuditPoint(1.0, 0.5), AuditPoint(4.0, 2.0)], "immutable": [AuditPoint(math.inf, 6.1)]}
    plot_stated_and_audited(curves, tmp_path / "plot.png")
    assert_large(tmp_path / "plot.png")
    plot_stated_and_audited({"nothing found": [AuditPoint(0.5, 0.0)]}, tmp_path / "zero.png")
    assert (tmp_path / "zero.png").stat().st_size > 0
