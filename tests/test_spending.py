from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from labeldp.spending import Cost, Spending, group_sizes

ROWS = 8


@st.composite
def histories(draw):
    owner = draw(st.none() | st.lists(st.integers(0, 3), min_size=ROWS, max_size=ROWS).map(np.array))
    if owner is not None:
        owner = np.unique(owner, return_inverse=True)[1]
    masks = st.none() | st.lists(st.booleans(), min_size=ROWS, max_size=ROWS).filter(any).map(np.array)
    releases = draw(st.lists(st.tuples(masks, st.integers(1, 9)), max_size=5))
    return owner, releases, draw(masks)


@given(histories())
def test_each_unit_pays_for_its_own_rows(history):
    owner, releases, asked = history
    spending = Spending(ROWS, owner)
    units = np.arange(ROWS) if owner is None else owner
    totals = dict.fromkeys(units.tolist(), Fraction(0))
    for mask, tenths in releases:
        # Not linear in the number of rows, as for Gaussian counts.
        costs = {m: Cost(epsilon=Fraction(tenths * m * m, 10)) for m in group_sizes(mask, owner)}
        spending.add(mask, costs)
        chosen = units if mask is None else units[mask]
        for unit in totals:
            m = int((chosen == unit).sum())
            totals[unit] += Fraction(tenths * m * m, 10)
    assert spending.worst().epsilon == max(totals.values())
    touched = units if asked is None else units[asked]
    assert spending.worst(asked).epsilon == max(totals[u] for u in touched.tolist())
