from math import inf, log
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import labeldp as ldp
from labeldp.mechanisms import GroupHistogram, OneHotGaussian, OneHotLaplace, RRWithPrior

ROWS = 40
FIRST = np.arange(ROWS) < ROWS // 2
GROUPS = np.arange(ROWS) % 4


def vault(users=None, n_rows=ROWS):
    return ldp.Vault(np.arange(n_rows) % 3, ldp.LabelSpace(range(3)), ldp.Budget(1000.0, 0.5), users=users)


def response(vault, epsilon, rows=None):
    return vault.release(ldp.RandomizedResponse(epsilon), row_selection=rows)


def histogram(vault, epsilon, rows=None, delta=0.0):
    return vault.release(GroupHistogram(GROUPS, epsilon, delta), row_selection=rows)


def test_likelihoods_add_where_they_overlap():
    v = vault()
    everywhere, half = response(v, 1.0), v.release(OneHotLaplace(2.0), row_selection=FIRST)
    joined = ldp.Release.concat(everywhere, half)
    assert joined.kind == "likelihood"
    total = everywhere.log_evidence() + half.log_evidence()
    assert joined.log_evidence() == pytest.approx(total, abs=1e-6)
    assert joined.log_evidence([39, 3]) == pytest.approx(total[[39, 3]], abs=1e-6)
    assert (joined.labels() == total.argmax(axis=1)).mean() > 0.5


def test_disjoint_priors_stand_side_by_side():
    v = vault()
    one, two = histogram(v, 1.0, FIRST), histogram(v, 2.0, ~FIRST)
    joined = ldp.Release.concat(one, two)
    assert joined.kind == "prior"
    assert np.array_equal(joined.log_evidence(FIRST), one.log_evidence(FIRST))
    assert np.array_equal(joined.log_evidence(~FIRST), two.log_evidence(~FIRST))


def test_rows_of_no_part_are_not_released():
    v = vault()
    joined = ldp.Release.concat(response(v, 1.0, [0, 1]), response(v, 1.0, [5]))
    assert np.flatnonzero(joined.labels() != -1).tolist() == [0, 1, 5]
    assert np.flatnonzero(joined.log_evidence().any(axis=1)).tolist() == [0, 1, 5]


def one_candidate(vault, rows=None):
    """RRWithPrior with one candidate, class 2: it always releases 2, and its evidence is flat."""
    prior = np.tile([0.0, 0.0, 1.0], (vault.n_rows, 1))
    return vault.release(RRWithPrior(1.0, prior), row_selection=rows)


def test_a_row_of_one_part_keeps_the_label_of_that_part():
    v = vault()
    constant, noisy = one_candidate(v, FIRST), response(v, 1.0, ~FIRST)
    joined = ldp.Release.concat(constant, noisy)
    assert (np.ptp(joined.log_evidence(FIRST), axis=1) == 0).all()  # flat: evidence alone would break ties at random
    assert (joined.labels()[FIRST] == 2).all()
    assert np.array_equal(joined.labels()[~FIRST], noisy.labels()[~FIRST])


def test_a_flat_part_leaves_the_label_to_the_others():
    v = vault()
    noisy = response(v, 1.0)
    joined = ldp.Release.concat(one_candidate(v, FIRST), noisy)
    assert np.array_equal(joined.labels(), noisy.labels())


def test_rows_that_a_join_has_dropped_have_no_label():
    v = vault()
    keep = np.arange(ROWS) % 3 == 0
    for joined in (
        ldp.Release.concat(response(v, 1.0, FIRST), response(v, 2.0, ~FIRST)),
        ldp.Release.concat(response(v, 1.0), response(v, 2.0)),
    ):
        filtered = joined.keep(keep)
        assert np.array_equal(filtered.labels(), np.where(keep, joined.labels(), -1))
        again = ldp.Release.concat(filtered)
        assert np.array_equal(again.labels(), filtered.labels())


def test_a_join_of_joins_keeps_the_labels_of_its_parts():
    v = vault()
    thirds = [np.arange(ROWS) % 3 == i for i in range(3)]
    a, b, c = one_candidate(v, thirds[0]), response(v, 1.0, thirds[1]), response(v, 2.0, thirds[2])
    joined = ldp.Release.concat(ldp.Release.concat(a, b), c)
    assert np.array_equal(joined.labels(), np.select(thirds, [a.labels(), b.labels(), c.labels()]))


@st.composite
def parts_of_a_vault(draw):
    """Up to four releases of rows of their own choice, at most one of them a prior, some forgotten afterwards."""
    v = vault(n_rows=12)
    masks = st.lists(st.booleans(), min_size=12, max_size=12).filter(any).map(np.array)
    parts = []
    for index in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["response", "candidate", "laplace", "counts"]))
        kind = "response" if kind == "counts" and any(p.kind == "prior" for p in parts) else kind
        epsilon, rows = 0.5 + index, draw(masks)
        if kind == "response":
            parts.append(response(v, epsilon, rows))
        elif kind == "laplace":
            parts.append(v.release(OneHotLaplace(epsilon), row_selection=rows))
        elif kind == "counts":
            parts.append(v.release(GroupHistogram(np.arange(12) % 4, epsilon), row_selection=rows))
        else:
            prior = np.tile([0.0, 0.0, 1.0], (12, 1))
            parts.append(v.release(RRWithPrior(epsilon, prior), row_selection=rows))
        if draw(st.booleans()):
            parts[-1] = parts[-1].keep(draw(masks))
    return parts, draw(st.none() | masks), draw(st.integers(0, 5))


@given(parts_of_a_vault())
@settings(max_examples=80)
def test_labels_of_a_join_by_a_slow_oracle(case):
    parts, keep, seed = case
    joined = ldp.Release.concat(*parts)
    joined = joined if keep is None else joined.keep(keep)
    found = joined.labels(seed)
    for row in range(12):
        active_parts = [p for p in parts if p.row_mask is None or p.row_mask[row]]
        if not active_parts or (keep is not None and not keep[row]):
            assert found[row] == -1
        elif len(active_parts) == 1:
            assert found[row] == active_parts[0].labels(seed)[row]
        else:
            support = sum(p.log_evidence([row])[0].astype(np.float64) for p in active_parts)
            assert support[found[row]] == pytest.approx(support.max(), abs=1e-5)


def test_overlapping_priors_are_refused():
    v = vault()
    with pytest.raises(ldp.InputError, match="prior"):
        ldp.Release.concat(histogram(v, 1.0), histogram(v, 2.0, FIRST))
    with pytest.raises(ldp.InputError, match="prior"):
        ldp.Release.concat(histogram(v, 1.0), response(v, 2.0).relabel(np.zeros(ROWS, int)))


def test_a_filtered_join_of_priors_is_still_a_prior():
    v = vault()
    joined = ldp.Release.concat(histogram(v, 1.0, FIRST), histogram(v, 2.0, ~FIRST)).keep(FIRST)
    assert joined.kind == "prior"
    with pytest.raises(ldp.InputError, match="prior"):
        ldp.Release.concat(joined, histogram(v, 3.0))


def test_one_release_is_not_two_pieces_of_evidence():
    v = vault()
    with pytest.raises(ldp.InputError):
        ldp.Release.concat(response(v, 1.0), response(v, 1.0))


def test_a_release_can_be_split_and_joined_again():
    release = response(vault(), 1.0)
    joined = ldp.Release.concat(release.keep(FIRST), release.keep(~FIRST))
    assert np.array_equal(joined.log_evidence(), release.log_evidence())


@pytest.mark.parametrize("make", [response, histogram])
def test_disjoint_rows_cost_the_largest(make):
    v = vault()
    guarantee = ldp.Release.concat(make(v, 1.0, FIRST), make(v, 2.5, ~FIRST)).guarantee
    assert (guarantee.epsilon, guarantee.delta, guarantee.unit) == (2.5, 0.0, "label")


def test_overlapping_rows_cost_the_sum():
    v = vault()
    gaussian = v.release(OneHotGaussian(1.0, 1e-4), row_selection=FIRST)
    other = v.release(OneHotGaussian(2.0, 1e-5), row_selection=[0, 39])
    guarantee = ldp.Release.concat(gaussian, other).guarantee
    assert guarantee.epsilon == pytest.approx(3.0)
    assert guarantee.delta == pytest.approx(1.1e-4)


def test_users_pay_the_sum_even_for_disjoint_rows():
    v = vault(users=np.arange(ROWS) % (ROWS // 2))
    guarantee = ldp.Release.concat(response(v, 1.0, FIRST), response(v, 2.5, ~FIRST)).guarantee
    assert (guarantee.epsilon, guarantee.unit) == (3.5, "user")


@pytest.mark.parametrize("make", [response, histogram])
def test_dropping_rows_does_not_make_two_releases_of_them_cheaper(make):
    """Every label is in both releases, and the choice of rows can depend on them."""
    v = vault()
    one, two = make(v, 1.0), make(v, 2.5)
    keep = one.labels() == 0
    assert ldp.Release.concat(one.keep(keep), two.keep(~keep)).guarantee.epsilon == 3.5


def test_labels_derived_from_two_releases_do_not_become_cheaper():
    v = vault()
    one, two = response(v, 1.0), response(v, 2.5)
    parts = [r.relabel(np.where(rows, r.labels(), -1)) for r, rows in ((one, FIRST), (two, ~FIRST))]
    assert ldp.Release.concat(*parts).guarantee.epsilon == 3.5


@pytest.mark.parametrize(("makes", "trust"), [((response, response), "local"), ((response, histogram), "central")])
def test_a_join_is_local_only_if_each_part_is(makes, trust):
    v = vault()
    parts = [make(v, 1.0, rows) for make, rows in zip(makes, (FIRST, ~FIRST), strict=True)]
    assert ldp.Release.concat(*parts).guarantee.trust == trust


def test_a_join_names_each_entry_and_can_be_derived_from():
    v = vault()
    one, two = response(v, 1.0, FIRST), response(v, 2.0, ~FIRST)
    joined = ldp.Release.concat(one, two)
    assert joined.entry.split(",") == [one.entry, two.entry]
    v.release(GroupHistogram(GROUPS, 1.0), derived_from=[joined])


def test_only_releases_of_the_same_rows_and_classes_are_joined():
    other_classes = ldp.Vault(["a", "b"] * 20, ldp.LabelSpace(["a", "b"]), ldp.Budget(9.0))
    for other in (vault(n_rows=ROWS + 1), other_classes):
        with pytest.raises(ldp.InputError, match="one vault"):
            ldp.Release.concat(response(vault(), 1.0), response(other, 1.0))
    with pytest.raises(ldp.InputError, match="at least one"):
        ldp.Release.concat()


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_a_join_is_not_saved(tmp_path, suffix):
    v = vault()
    with pytest.raises(ldp.InputError, match="parts"):
        ldp.Release.concat(response(v, 1.0, FIRST), response(v, 1.0, ~FIRST)).save(tmp_path / f"joined{suffix}")
    assert not list(tmp_path.iterdir())


def test_relabel_gives_each_label_the_given_confidence():
    source = response(vault(), 1.0)
    codes = np.where(FIRST, 2, -1)
    release = source.relabel(codes, confidence=0.9)
    assert release.kind == "prior"
    assert release.log_evidence([0])[0] == pytest.approx([log(0.05), log(0.05), log(0.9)])
    assert np.exp(release.log_evidence(FIRST)).sum(axis=1) == pytest.approx(1)
    assert (release.log_evidence(~FIRST) == 0).all()
    assert np.array_equal(release.labels(), codes)
    assert (release.guarantee, release.entry) == (source.guarantee, source.entry)


def test_relabel_can_label_rows_that_were_not_released():
    release = response(vault(), 1.0, FIRST).relabel(np.ones(ROWS, np.int64))
    assert (release.labels() == 1).all()


@pytest.mark.parametrize(
    "codes",
    [np.zeros(ROWS - 1, int), np.full(ROWS, 3), np.full(ROWS, -2), np.zeros(ROWS), np.zeros((ROWS, 1), int)],
    ids=["too few", "beyond", "negative", "floats", "matrix"],
)
def test_relabel_refuses_what_are_no_codes(codes):
    with pytest.raises(ldp.InputError, match="relabel takes 40 codes from -1"):
        response(vault(), 1.0).relabel(codes)


@pytest.mark.parametrize("confidence", [0.0, 1.0, -0.5, float("nan")])
def test_relabel_refuses_certainty_and_nonsense(confidence):
    with pytest.raises(ldp.InputError, match="confidence"):
        response(vault(), 1.0).relabel(np.zeros(ROWS, int), confidence)


def test_a_posterior_normalizes_rows_and_drops_rows_of_zeros():
    v = vault()
    source, other = response(v, 1.0), response(v, 2.0)
    probabilities = np.where(FIRST[:, None], [1.0, 1.0, 6.0], 0.0)
    release = source.with_posterior(probabilities, derived_from=[other])
    assert release.kind == "prior"
    assert np.exp(release.log_evidence(FIRST)) == pytest.approx(np.tile([0.125, 0.125, 0.75], (FIRST.sum(), 1)))
    assert np.array_equal(release.labels(), np.where(FIRST, 2, -1))
    assert release.guarantee.epsilon == 3.0
    assert release.lineage == source.lineage + other.lineage


@pytest.mark.parametrize(
    "probabilities", [np.ones((ROWS, 2)), np.ones(ROWS), np.full((ROWS, 3), -1), np.full((ROWS, 3), np.nan)]
)
def test_a_posterior_of_other_shape_or_values_is_refused(probabilities):
    with pytest.raises(ldp.InputError, match="with_posterior takes probabilities for 40 rows and 3 classes"):
        response(vault(), 1.0).with_posterior(probabilities)


def test_releases_that_protect_different_units_are_not_joined():
    space = ldp.LabelSpace(["no", "yes"])
    labels, owners = ["no", "yes"] * 2, [0, 0, 1, 1]
    of_label = ldp.Vault(labels, space, ldp.Budget(1.0)).release(ldp.RandomizedResponse(1.0))
    of_user = ldp.Vault(labels, space, ldp.Budget(2.0), users=owners).release(ldp.RandomizedResponse(1.0))
    with pytest.raises(ldp.InputError, match="protect different units"):
        ldp.Release.concat(of_user, of_label)


@pytest.mark.parametrize(("epsilon", "together"), [(5.0, 6.0), (inf, inf)])
def test_a_source_that_names_no_use_of_labels_counts_by_its_guarantee(epsilon, together):
    """A stored teacher, for example, or a model of another origin: results derived from it are not free."""
    release, model = response(vault(), 1.0), SimpleNamespace(lineage=(), guarantee=ldp.Guarantee(epsilon, 0.1))
    for found in (
        release.keep(FIRST, derived_from=[model]),
        release.relabel(np.zeros(ROWS, int), derived_from=[model]),
        release.keep(FIRST, derived_from=[model]).keep(FIRST),
    ):
        assert (found.guarantee.epsilon, found.guarantee.delta) == (together, 0.1)
