import pytest
from cardfacts import FACTS, entry

import labeldp.privacy.mechanisms as mechanisms
from labeldp.report.card import make_card
from labeldp.report.card.ledger import mark_own_entries
from labeldp.report.card.proofs import describe_mechanism, proof_title, proofs


@pytest.mark.parametrize("choice", ["BestCandidate", "HighestScore", "NoisyMinLoss"])
def test_a_model_owns_its_releases_and_its_last_score(choice):
    ledger = [
        entry("budget", kind="budget"),
        entry("a", "LinearQuery"),
        entry("b", choice, origin=["a"]),
        entry("old", "CorrectCount", origin=["a", "b"]),
        entry("new", "CorrectCount", origin=["b", "a"]),
        entry("more", "GroupHistogram", origin=["a", "b"]),
        entry("else", "RandomizedResponse"),
    ]
    marked = {each["id"]: each["purpose"] if each["own"] else None for each in mark_own_entries(ledger, ["a", "b"])}
    assert marked == {
        "a": "training",
        "b": "choosing a model",
        "old": None,
        "new": "scoring",
        "more": "scoring",
        "else": None,
    }


def test_a_plan_is_the_models_own_if_a_step_is_and_is_counted_for_it():
    ledger = [
        entry("p", "plan", kind="plan", epsilon=0.9),
        entry("a", "LinearQuery", kind="step", step="p:0", epsilon=0.0),
        entry("b", "BestCandidate", kind="step", step="p:1", epsilon=0.0, origin=["a"]),
        entry("q", "plan", kind="plan", epsilon=0.7),
        entry("c", "LinearQuery", kind="step", step="q:0", epsilon=0.0),
        entry("score", "CorrectCount", origin=["a", "b"]),
    ]
    marked = {each["id"]: each["purpose"] if each["own"] else None for each in mark_own_entries(ledger, ["a", "b"])}
    own = {"p": "training", "a": "training", "b": "choosing a model", "score": "scoring"}
    assert marked == own | {"q": None, "c": None}
    text = make_card(FACTS | {"ledger": ledger, "entries": ["a", "b"]}).to_markdown()
    assert "| plan | training | 10 | 0.9 |" in text
    assert text.count("| in its plan | in its plan |") == 3
    assert "plan: nothing by itself; it is the charge for several releases" in text


def test_without_a_list_of_releases_all_are_taken_for_the_models():
    assert all(each["own"] for each in mark_own_entries([entry("a"), entry("b", origin=["a"])], None))


def test_joined_releases_name_several_entries():
    assert [each["own"] for each in mark_own_entries([entry("a"), entry("b"), entry("c")], ["a,b"])] == [
        True,
        True,
        False,
    ]


def test_every_mechanism_has_a_sentence_and_a_proof():
    for name in mechanisms.__all__:
        if isinstance(kind := getattr(mechanisms, name), type) and issubclass(kind, mechanisms.Mechanism):
            assert describe_mechanism(name).endswith((".", ")"))
            assert "`" not in describe_mechanism(name)  # for who has never seen the code
            assert proofs({"mechanism": name}) == (kind.__module__,)
            assert len(proof_title(kind.__module__)) > 20


def test_votes_of_teachers_have_two_proofs():
    votes = entry("v", "TeacherVotes", parameters={"aggregator": "ConfidentGNMax(threshold=1.0)"})
    assert proofs(votes) == ("labeldp.privacy.teachers.teacher_votes", "labeldp.privacy.mechanisms.vote_aggregators")


def test_a_release_without_a_proof_is_called_so():
    votes = entry("v", "TeacherVotes", parameters={"aggregator": "ImmutableArgmax(1)"}, epsilon="inf")
    text = make_card(FACTS | {"ledger": [votes], "entries": ["v"]}).to_markdown()
    assert "| infinite | 0 | NONE; reason: " in text
    assert "unknown to this version" in make_card(FACTS | {"ledger": [entry("w", "Later")]}).to_markdown()


def test_many_other_uses_are_cut_and_lost_ones_said():
    ledger = [entry(str(i), status="reserved") for i in range(30)]
    text = make_card(FACTS | {"ledger": ledger, "entries": []}).to_markdown()
    assert "Of 30 other uses the last 20 are shown" in text
    assert text.count("counted as spent") == 20
