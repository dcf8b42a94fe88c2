import hashlib
import json
import random
import sqlite3
import zlib
from dataclasses import replace

import numpy as np
import pytest
from bound_vault import LABELS, RR, SPACE, identity, open_vault

import labeldp as ldp
from labeldp.mechanisms import GroupHistogram
from labeldp.privacy.vault import Ledger
from labeldp.privacy.vault.chain import INITIAL_DIGEST, Chain
from labeldp.privacy.vault.entries import Entry, labels_match
from labeldp.report.ledger import print_ledger, read_ledger_report


def spend(path):
    """Fill a ledger with several kinds of entries; return what each part of it says."""
    vault = open_vault(path, 9.0)
    vault.release(RR(0.5))
    vault.release(RR(0.25), row_selection=np.arange(300))
    vault.plan(RR(0.125), RR(0.5), row_selection=np.arange(100, 900)).release(RR(0.125))
    open_vault(path, 12.0).release(GroupHistogram(np.arange(1000) % 7, 0.75))
    return open_vault(path, 12.0).guarantee().epsilon


def opened(path):
    """Open a ledger as a user would: its total, its report and each stored release."""
    vault = open_vault(path, 12.0)
    for entry in vault.ledger.entries():
        if entry.status == "committed" and entry.kind == "release":
            vault.ledger.payload(entry.id)
    return min(vault.guarantee().epsilon, read_ledger_report(path)["spent"]["epsilon"])


def flipped(data, place, bit):
    return data[:place] + bytes([data[place] ^ (1 << bit)]) + data[place + 1 :]


def check_flips(path, tmp_path, flips):
    """Flip one bit at a time: the total stays, or one sentence says that the ledger is damaged."""
    total, data, sentences = spend(path), path.read_bytes(), []
    for place, bit in flips(data):
        copy = tmp_path / "copy.ledger"
        copy.write_bytes(flipped(data, place, bit))
        try:
            assert opened(copy) >= total, (place, bit)
        except ldp.LabelDPError as problem:
            sentences.append(str(problem))
    assert sentences
    assert all(sentence.isprintable() for sentence in sentences)


def random_flips(count, seed):
    draw = random.Random(seed)
    return lambda data: [(draw.randrange(len(data)), draw.randrange(8)) for _ in range(count)]


def figure_flips(count, seed):
    """Flip bits in the texts of costs and budgets."""

    def places(data):
        draw = random.Random(seed)
        found = []
        for word in (b'["1/', b'["3/', b'"epsilon":', b'"delta":', b'"1": ['):
            at = data.find(word)
            while at >= 0:
                found += range(at, at + len(word) + 4)
                at = data.find(word, at + 1)
        return [(draw.choice(found), draw.randrange(8)) for _ in range(count)]

    return places


def test_a_flipped_bit_is_noticed_or_changes_no_total(path, tmp_path):
    check_flips(path, tmp_path, random_flips(100, seed=1))


def test_a_flipped_bit_near_a_figure_is_noticed(path, tmp_path):
    check_flips(path, tmp_path, figure_flips(30, seed=2))


@pytest.mark.long
def test_a_thousand_flipped_bits(path, tmp_path):
    check_flips(path, tmp_path, random_flips(1000, seed=3))


@pytest.mark.long
def test_three_hundred_flipped_bits_near_figures(path, tmp_path):
    check_flips(path, tmp_path, figure_flips(300, seed=4))


def edited(path, statement, *values):
    with sqlite3.connect(path) as db:
        assert db.execute(statement, values).rowcount
    db.close()


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM labeldp_events WHERE number = (SELECT max(number) FROM labeldp_events)",
        "DELETE FROM labeldp_events WHERE number = 2",
        "DELETE FROM labeldp_events",
        "UPDATE labeldp_events SET costs = replace(costs, '1/2', '1/4')",
        "UPDATE labeldp_events SET costs = ''",
        "UPDATE labeldp_events SET body = replace(body, '9.0', '90.0') WHERE kind = 'bind'",
        "UPDATE labeldp_events SET row_set = '' WHERE row_set != ''",
        "UPDATE labeldp_events SET kind = 'commit' WHERE kind = 'release'",
        "UPDATE labeldp_events SET body = CAST(body AS BLOB)",
        "UPDATE labeldp_events SET number = number + 1 WHERE number = (SELECT max(number) FROM labeldp_events)",
        "UPDATE labeldp_row_sets SET packed = x'00'",
        "DELETE FROM labeldp_row_sets",
        "UPDATE labeldp_head SET count = count - 1",
        "UPDATE labeldp_head SET digest = 'x'",
        "DELETE FROM labeldp_head",
        "UPDATE labeldp_head SET format = 5",
    ],
)
def test_every_edit_of_a_ledger_is_refused(path, statement):
    spend(path)
    edited(path, statement)
    with pytest.raises(ldp.LedgerError, match=r"damaged|has ledger format 5"):
        open_vault(path, 12.0)


def test_a_missing_end_of_the_chain_is_noticed_though_the_rest_is_whole(path):
    """The last release and its charge cannot be cut off without a trace."""
    open_vault(path).release(RR(0.5))
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM labeldp_events WHERE number > 1")
    with pytest.raises(ldp.LedgerError, match="the last events are missing or were changed"):
        open_vault(path)


def test_a_stored_release_that_was_changed_is_not_returned(path):
    open_vault(path).release(RR(0.5))
    with sqlite3.connect(path) as db:
        (data,) = db.execute("SELECT data FROM labeldp_payloads").fetchone()
        db.execute("UPDATE labeldp_payloads SET data = ?", (flipped(data, len(data) // 2, 0),))
    with pytest.raises(ldp.LedgerError, match="a stored release is not what was drawn"):
        open_vault(path).release(RR(0.5))
    assert open_vault(path).guarantee().epsilon == 0.5


def forged(path, event, row_set=None):
    """Append an event whose digest fits, and a row set, to a ledger."""
    with sqlite3.connect(path) as db:
        names = ", ".join(event.__slots__)
        marks = ", ".join("?" * len(event.__slots__))
        db.execute(
            f"INSERT INTO labeldp_events ({names}) VALUES ({marks})", [getattr(event, n) for n in event.__slots__]
        )
        db.execute("UPDATE labeldp_head SET count = ?, digest = ?", (event.number, event.digest))
        if row_set is not None:
            db.execute("INSERT INTO labeldp_row_sets VALUES (?, ?)", (event.row_set, row_set))


@pytest.mark.parametrize(
    ("kind", "body", "fields"),
    [
        ("bind", {}, {}),
        ("bind", {"identity": {}, "budget": {}}, {}),
        ("budget", {}, {"entry": "x"}),
        ("budget", {"to": {"epsilon": "many"}}, {"entry": "x"}),
        ("release", {}, {"entry": "x", "costs": "not json"}),
        ("release", {}, {"entry": "x", "costs": json.dumps({"1": ["-1", "0", "0"]})}),
        ("release", {}, {"entry": "x", "costs": json.dumps({"1": ["1", "0"]})}),
        ("release", {"mechanism": 5}, {"entry": "x"}),
        ("release", {"mechanism": "m"}, {"entry": "x", "costs": json.dumps({"1": ["1e99999", "0", "0"]})}),
        ("release", {"mechanism": "m"}, {"entry": "x", "costs": json.dumps({"1": ["9" * 400, "0", "0"]})}),
        ("release", {"mechanism": "m"}, {"entry": "x", "costs": json.dumps({"0": ["1", "0", "0"]})}),
        ("release", {"mechanism": "m", "released": "all"}, {"entry": "x"}),
        ("release", {"mechanism": "m", "parameters": [1]}, {"entry": "x"}),
        ("step", {}, {"entry": "x"}),
        ("new kind", {}, {}),
    ],
)
def test_a_chain_whose_digests_fit_is_still_not_believed(path, kind, body, fields):
    """A hostile ledger can have digests that fit: what it says must make sense as well."""
    chain = open_vault(path).ledger.snapshot()
    forged(path, chain.next_event(kind, body, "now", **fields))
    with pytest.raises(ldp.LedgerError, match="damaged"):
        open_vault(path).guarantee()


def test_an_event_fits_at_its_own_place_only():
    facts = {"unit": "label", "owners": None, "mark": "m", "identity": {"name": "n", "label": None, "n_rows": 3}}
    facts["budget"] = {"epsilon": 1.0, "delta": 0.0, "composition": "sum", "order": None}
    chain = Chain()
    assert (chain.n_events, chain.digest) == (0, INITIAL_DIGEST)
    first = chain.next_event("bind", facts, "now")
    chain.extend(first)
    second = chain.next_event(
        "release", {"mechanism": "m"}, "now", entry="a", request="r", costs='{"1": ["1/2", "0", "0"]}'
    )
    for name in ("kind", "entry", "request", "label", "costs", "row_set", "body", "at", "digest"):
        with pytest.raises(ValueError, match="event 2 does not follow"):
            chain.extend(replace(second, **{name: getattr(second, name) + " "}))
    for other in (first, replace(second, number=3)):
        with pytest.raises(ValueError, match="event 2 does not follow"):
            chain.extend(other)
    chain.extend(second)
    assert chain.charges == [("", '{"1": ["1/2", "0", "0"]}')]
    # No text can move from one field to the next without a trace.
    moved = replace(second, entry="ar", request="")
    assert moved.digest_after(first.digest) != second.digest


def test_only_new_events_are_read(path, monkeypatch):
    from labeldp.privacy.vault import schema

    first, second, seen = open_vault(path), open_vault(path), []
    first.release(RR(0.25))
    assert second.guarantee().epsilon == 0.25
    monkeypatch.setattr(schema, "events_after", lambda db, number: seen.append(number) or iter(()))
    second.guarantee()
    assert not seen
    monkeypatch.undo()
    first.release(RR(0.5))
    assert second.guarantee().epsilon == 0.75


def test_a_ledger_in_memory_is_a_chain_as_well():
    vault = ldp.Vault(LABELS, SPACE, ldp.Budget(2.0), ledger=Ledger(), identity=identity())
    vault.release(RR(0.5), row_selection=[1, 2])
    vault.release(RR(0.5), row_selection=[2, 3])
    assert vault.guarantee().epsilon == 1.0
    assert vault.remaining([1]) == (1.5, 0.0)
    assert vault.ledger.snapshot().n_events == 5


def test_an_interrupted_event_is_no_reservation_without_a_charge():
    """A request that was reserved is drawn again at no cost, so that the charge comes first."""

    class Interrupted(list):
        def append(self, charge):
            raise KeyboardInterrupt

    vault = ldp.Vault(LABELS, SPACE, ldp.Budget(2.0))
    chain = vault.ledger.snapshot()
    chain.charges = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        vault.release(RR(0.5))
    chain.charges = []
    vault.release(RR(0.5))
    assert vault.guarantee().epsilon == 0.5


FACTS = {"unit": "label", "owners": None, "mark": "m", "identity": {"name": "n", "label": None, "n_rows": 1000}}
FACTS["budget"] = {"epsilon": 9.0, "delta": 0.0, "composition": "sum", "order": None}


@pytest.mark.parametrize(
    "change",
    [
        {"identity": FACTS["identity"] | {"n_rows": 3.5}},
        {"identity": FACTS["identity"] | {"n_rows": -1}},
        {"identity": FACTS["identity"] | {"n_rows": 10**30}},
        {"identity": FACTS["identity"] | {"columns": 5}},
        {"identity": FACTS["identity"] | {"more": 5}},
        {"budget": FACTS["budget"] | {"order": -2}},
        {"unit": "nobody"},
    ],
)
def test_nobody_can_be_bound_to_nonsense(change):
    chain = Chain()
    chain.extend(chain.next_event("bind", FACTS, "now"))
    with pytest.raises((TypeError, ValueError, AttributeError)):
        chain.extend(chain.next_event("bind", FACTS | change, "now"))


def test_a_chain_begins_with_a_binding_and_has_each_entry_once():
    chain = Chain()
    with pytest.raises(ValueError, match="begin with a binding"):
        chain.extend(chain.next_event("release", {"mechanism": "m"}, "now", entry="a"))
    chain.extend(chain.next_event("bind", FACTS, "now"))
    chain.extend(chain.next_event("release", {"mechanism": "m"}, "now", entry="a"))
    with pytest.raises(ValueError, match="two entries have one id"):
        chain.extend(chain.next_event("release", {"mechanism": "m"}, "now", entry="a"))


@pytest.mark.parametrize("packed", [b"not packed", zlib.compress(bytes(124)), zlib.compress(bytes(1 << 20))])
def test_a_row_set_of_other_rows_is_damage(path, packed):
    """A set of fewer rows would leave people out of the total."""
    chain, name = open_vault(path).ledger.snapshot(), hashlib.sha256(packed).hexdigest()
    costs = json.dumps({"1": ["1/2", "0", "0"]})
    forged(path, chain.next_event("release", {"mechanism": "m"}, "now", entry="x", costs=costs, row_set=name), packed)
    with pytest.raises(ldp.LedgerError, match="damaged"):
        read_ledger_report(path)


@pytest.mark.parametrize("body", ["{", "[" * 100_000, "1" * 5000, "[]", '{"mechanism": "m", "kind": "budget"}'])
def test_a_description_of_an_entry_that_makes_no_sense_gives_one_sentence(path, body):
    chain = open_vault(path).ledger.snapshot()
    event = replace(chain.next_event("release", {}, "now", entry="x"), body=body)
    forged(path, replace(event, digest=event.digest_after(chain.digest)))
    if body.startswith("{") and body.endswith("}"):
        print_ledger(read_ledger_report(path))
    else:
        with pytest.raises(ldp.LedgerError, match="damaged"):
            read_ledger_report(path)


def test_a_ledger_that_claims_to_be_empty_is_damage(path):
    open_vault(path).release(RR(0.5))
    edited(path, f"UPDATE labeldp_head SET count = 0, digest = '{INITIAL_DIGEST}'")
    with pytest.raises(ldp.LedgerError, match="damaged"):
        read_ledger_report(path)
    with pytest.raises(ldp.LedgerError):
        open_vault(path)


def test_a_stored_release_of_nonsense_whose_digest_fits_gives_one_sentence(path):
    vault = open_vault(path)
    vault.release(RR(0.5))
    with sqlite3.connect(path) as db:
        (name,) = db.execute("SELECT entry FROM labeldp_payloads").fetchone()
        db.execute("UPDATE labeldp_payloads SET data = ?", (b"nonsense",))
    digest = hashlib.sha256(b"nonsense").hexdigest()
    forged(path, vault.ledger.snapshot().next_event("commit", {"sha256": digest}, "now", entry=name))
    with pytest.raises(ldp.LedgerError, match="cannot be read"):
        open_vault(path).release(RR(0.5))


def test_a_label_without_a_name_matches_every_name():
    assert [labels_match(*pair) for pair in (("a", "a"), (None, "a"), ("a", None), (None, None))] == [True] * 4
    assert not labels_match("a", "b")


def test_a_request_finds_entries_of_its_label_first_and_never_those_of_another():
    ledger, found = ldp.Vault(LABELS, SPACE, ldp.Budget(1.0)).ledger, {}
    for label in (None, "income", "illness"):
        entry = Entry("release", "asked", {"mechanism": "m"}, label=label)
        ledger.reserve(entry, None, lambda chain: None)
        found[entry.id] = label
    chain = ledger.snapshot()
    assert [found[e.id] for e in chain.entries_for_request("asked", "income")] == ["income", None]
    assert [found[e.id] for e in chain.entries_for_request("asked", "wealth")] == [None]
    assert [found[e.id] for e in chain.entries_for_request("asked", None)] == [None, "income", "illness"]
    assert chain.entries_for_request("else", "income") == []
    assert {(e.request, e.status, e.finished) for e in chain.entries()} == {("asked", "reserved", None)}


def test_every_change_of_the_budget_is_an_entry_of_its_own(path):
    open_vault(path, 1.0).release(RR(0.5))
    for epsilon in (2.0, 3.0, 4.0):
        open_vault(path, epsilon)
    changes = [e for e in Ledger(path).entries() if e.kind == "budget"]
    assert [e.details["to"]["epsilon"] for e in changes] == [2.0, 3.0, 4.0]
    assert len({e.id for e in changes} - {""}) == 3
    assert all(e.status == "committed" and e.finished == e.created for e in changes)
