from functools import cache

import numpy as np
import pytest
from scripted import Seeded
from simulated import Binormal

import labeldp as ldp
from labeldp.evaluate import choose, measure, split_rows
from labeldp.evaluate.intervals import proportion_interval
from labeldp.privacy.mechanisms import BestCandidate, CorrectCount

SPACE = ldp.LabelSpace(["a", "b", "c"])
RNG = np.random.default_rng(0)
CODES = RNG.integers(0, 3, 400)
PROBA = np.where(np.eye(3)[CODES] > 0, 0.8, 0.1)


def vault(epsilon=1.0, codes=CODES, seed=0):
    made = ldp.Vault(np.array(list(SPACE))[codes], SPACE, ldp.Budget(epsilon))
    made._bits = Seeded(seed)
    return made


def test_the_better_candidate_is_chosen():
    mine = vault()
    wrong = (CODES + 1) % 3
    assert choose(mine, [wrong, PROBA, wrong], np.arange(200), 1.0).best_index == 1
    assert mine.guarantee().epsilon == 1.0
    assert choose(mine, [wrong, PROBA, wrong], np.arange(200), 1.0).best_index == 1
    assert mine.guarantee().epsilon == 1.0
    assert choose(mine, [CODES, wrong], np.arange(400) >= 200, 1.0).best_index == 0
    assert mine.guarantee().epsilon == 1.0


def test_the_choice_records_the_releases_that_the_models_learned_from():
    mine = vault(2.0)
    learned = mine.release(ldp.RandomizedResponse(1.0), row_selection=np.arange(200))
    choose(mine, [CODES, CODES], np.arange(200, 400), 1.0, derived_from=[learned])
    assert mine.ledger.entries()[-1].details["origin"] == [learned.entry]


def equal_candidates(rng, rows, accuracy=0.8):
    """Labels, and eight candidates that are equally good and wrong in different places."""
    codes = rng.integers(0, 3, rows)
    wrong = rng.random((rows, 8)) > accuracy
    return codes, (codes[:, None] + wrong * rng.integers(1, 3, (rows, 8))) % 3


def test_the_best_of_eight_equal_candidates_is_scored_without_selection_bias():
    """The mechanisms themselves, without a ledger: pick on one part, score on another, a thousand times."""
    rng, bits, interval = np.random.default_rng(1), Seeded(1), cache(proportion_interval)
    common = dict(space=SPACE, guarantee=ldp.Guarantee(1.0), mechanism="test", n_rows=150)
    covered = covered_on_selection_rows = 0
    for _ in range(1000):
        codes, said = equal_candidates(rng, 300)
        best = BestCandidate(said[:150], 1.0).draw(codes[:150], common, bits).best_index
        for part in (slice(150, 300), slice(0, 150)):
            count = CorrectCount(said[part, best], 0.5).draw(codes[part], common, bits)
            found = interval(min(count.n_correct, 150), 150, count.scale)
            covered += part.start == 150 and found.low <= 0.8 <= found.high
            covered_on_selection_rows += part.start == 0 and found.low <= 0.8 <= found.high
    assert 930 <= covered <= 970
    assert covered_on_selection_rows < 930  # on the rows that chose it, the score has a selection bias


@pytest.mark.long
def test_the_protocol_covers_through_the_vault():
    covered = 0
    for seed in range(1000):
        codes, said = equal_candidates(np.random.default_rng([seed, 1]), 400)  # a stream apart from the others
        mine = vault(1.0, codes, 10**6 + seed)
        first, second = split_rows(400, (0.5, 0.5), seed)
        best = choose(mine, list(said.T), first, 1.0).best_index
        found = measure(mine, np.eye(3)[said[:, best]], second, 1.0).accuracy
        assert mine.guarantee().epsilon == 1.0
        covered += found.low <= 0.8 <= found.high
    assert 930 <= covered <= 970


@pytest.mark.parametrize("rare", [0, 1])
def test_auto_compares_candidates_by_their_ranking_where_a_class_is_rare(rare):
    """Both candidates predict the common class everywhere, so that both are right in 99 % of rows."""
    space, chosen = ldp.LabelSpace(["a", "b"]), []
    for seed in range(40):
        rng = np.random.default_rng([seed, rare])
        good, codes = Binormal(2500, 0.01, 2.0).draw(rng)
        chance = rng.uniform(0, 0.5, 2500)
        halved = np.stack([1 - good[:, 1] / 2, good[:, 1] / 2], axis=1)  # never above a half
        tables = [np.stack([1 - chance, chance], axis=1), halved]
        if rare == 0:
            codes, tables = 1 - codes, [table[:, ::-1] for table in tables]
        mine = ldp.Vault(np.array(["a", "b"])[codes], space, ldp.Budget(1.0))
        mine._bits = Seeded(seed)
        chosen.append(choose(mine, tables, None, 1.0).best_index)
        assert mine.guarantee().epsilon == 1.0
    assert np.mean(chosen) >= 0.9


def rare_tables(rows, seed):
    """A candidate that ranks well and is right less often than one that always predicts the common class."""
    rng = np.random.default_rng(seed)
    codes = (rng.random(rows) < 0.2).astype(int)
    ranked = np.clip(0.45 + 0.3 * codes + rng.normal(0, 0.1, rows), 0.01, 0.99)
    constant = np.full(rows, 0.2)
    return codes, [np.stack([1 - yes, yes], axis=1) for yes in (constant, ranked)]


def test_the_criterion_decides_what_is_best():
    space, rows = ldp.LabelSpace(["a", "b"]), 2000
    codes, (constant, ranked) = rare_tables(rows, 0)
    calibrated = np.where(np.eye(2)[codes] > 0, 0.6, 0.4)  # right always, and never sure
    sure = np.where(np.eye(2)[np.where(np.arange(rows) % 20 == 0, 1 - codes, codes)] > 0, 0.999, 0.001)
    for by, tables, best in (
        ("accuracy", [constant, ranked], 0),
        ("auc", [constant, ranked], 1),
        ("log-loss", [calibrated, sure], 1),
        ("accuracy", [calibrated, sure], 0),
        ("auto", [constant, ranked], 0),  # the second finds no class rare
    ):
        mine = ldp.Vault(np.array(["a", "b"])[codes], space, ldp.Budget(20.0))
        mine._bits = Seeded(1)
        choice = choose(mine, tables, None, 20.0, criterion=by)
        assert choice.best_index == best, by
        assert choice.mechanism == ("HighestScore" if by in ("auc", "log-loss") else "BestCandidate")
        assert choice.parameters.get("by") == (by if by in ("auc", "log-loss") else None)


def test_auto_goes_by_auc_where_all_candidates_find_one_of_two_classes_rare():
    low = np.random.default_rng(0).uniform(0.01, 0.3, 100)
    few = np.where(np.arange(100) < 5, 0.9, low)
    for yes, mechanism in ((few, "HighestScore"), (np.where(np.arange(100) < 6, 0.9, low), "BestCandidate")):
        tables = [np.stack([1 - each, each], axis=1) for each in (low, yes)]
        for turned in (tables, [table[:, ::-1] for table in tables]):
            mine = ldp.Vault(["a", "b"] * 50, ldp.LabelSpace(["a", "b"]), ldp.Budget(1.0))
            assert choose(mine, turned, None, 1.0).mechanism == mechanism


def test_rows_without_a_label_are_not_ranked():
    space = ldp.LabelSpace(["a", "b"], missing="public")
    labels = [None if place % 3 == 0 else "ab"[place % 2] for place in range(60)]
    tables = [np.stack([1 - yes, yes], axis=1) for yes in np.random.default_rng(0).random((2, 60))]
    mine = ldp.Vault(labels, space, ldp.Budget(1.0))
    choice = choose(mine, tables, np.arange(30), 1.0, criterion="auc")
    assert choice.parameters["scores"]["shape"] == [2, 20, 2]
    assert choice.parameters["row_ids"]["shape"] == [20]


def test_users_pay_epsilon_for_all_of_their_rows():
    tables = [np.stack([1 - yes, yes], axis=1) for yes in np.random.default_rng(0).random((2, 60))]
    users = np.arange(60) // 3
    mine = ldp.Vault(["a", "b"] * 30, ldp.LabelSpace(["a", "b"]), ldp.Budget(0.9), users=users)
    choice = choose(mine, tables, None, 0.9, criterion="log-loss")
    assert choice.parameters["epsilon"] == pytest.approx(0.3)
    assert (choice.guarantee.unit, mine.guarantee().epsilon) == ("user", pytest.approx(0.9))


def test_codes_without_scores_are_compared_as_they_are():
    space = ldp.LabelSpace(["a", "b"])
    mine = ldp.Vault(["a"] * 99 + ["b"], space, ldp.Budget(50.0))
    never, once = np.zeros(100, int), (np.arange(100) == 99).astype(int)
    assert choose(mine, [never, once], None, 50.0).best_index == 1


@pytest.mark.parametrize(
    ("candidates", "by", "message"),
    [
        ([PROBA], "auc", "AUC is for two classes, and there are 3"),
        ([PROBA], "brier", "no criterion 'brier'"),
        ([PROBA, CODES], "log-loss", "give the probabilities of each candidate"),
    ],
)
def test_a_criterion_that_does_not_fit_costs_nothing(candidates, by, message):
    mine = vault()
    with pytest.raises(ldp.InputError, match=message):
        choose(mine, candidates, None, 1.0, criterion=by)
    assert not mine.ledger.entries()


@pytest.mark.parametrize(
    ("candidates", "message"),
    [
        ([], "at least one candidate"),
        ([CODES[:3]], "one code for each of the 400 rows"),
        ([CODES * 0.5], "one code for each of the 400 rows"),
        ([CODES + 1], "from 0 to 2"),
        ([PROBA[:, :2]], "400 rows and 3 classes"),
        ([PROBA * 3], "add up to 1"),
    ],
)
def test_bad_candidates_cost_nothing(candidates, message):
    mine = vault()
    with pytest.raises(ldp.InputError, match=message):
        choose(mine, candidates, None, 1.0)
    assert mine.guarantee().epsilon == 0
