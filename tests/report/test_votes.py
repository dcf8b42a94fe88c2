import matplotlib.image
import numpy as np
import pytest

from labeldp.report.votes import plot_accuracy_by_teachers, plot_agreement, plot_leads, plot_spending

COUNTS = np.random.default_rng(0).multinomial(50, [0.6, 0.3, 0.1], size=200)


@pytest.mark.parametrize(
    "draw",
    [
        lambda path: plot_agreement(COUNTS, path, threshold=30),
        lambda path: plot_leads({"50 teachers": COUNTS, "100 teachers": 2 * COUNTS}, path),
        lambda path: plot_spending(
            [10, 20, 30], [5.0, 9.5, 15.0], {"any votes": [1, 1.5, 2], "these": [0.5, 0.6, 0.7]}, path
        ),
        lambda path: plot_accuracy_by_teachers({"plurality": {5: 0.9, 250: 0.85}, "one": {5: 0.8, 250: 0.5}}, path),
    ],
)
def test_each_plot_is_drawn(draw, tmp_path):
    draw(tmp_path / "plot.png")
    pixels = matplotlib.image.imread(tmp_path / "plot.png")
    assert pixels.shape[0] > 300
    assert 0.02 < (pixels[..., :3].min(axis=2) < 0.9).mean() < 0.9  # there is ink, and it is not all ink
