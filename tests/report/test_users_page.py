from pathlib import Path

import pytest

import labeldp as ldp

PAGE = (Path(__file__).parents[2] / "docs" / "users.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("epsilon", "delta", "labels"), [(1.0, 1e-6, 15), (0.25, 1e-6, 12), (4.0, 1e-6, 19), (1.0, 1e-8, 21)]
)
def test_delta_begins_to_pay_where_the_page_says(epsilon, delta, labels):
    response = ldp.RandomizedResponse(epsilon)
    assert response.scaled_to_unit(labels, delta).delta == delta
    assert response.scaled_to_unit(labels - 1, delta).delta == 0.0
    assert f"{labels} " in PAGE
