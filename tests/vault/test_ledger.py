import json
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import uuid
from multiprocessing import get_context

import numpy as np
import pytest

import labeldp as ldp
from labeldp.vault.ledger import in_progress

SPACE = ldp.LabelSpace([0, 1])
LABELS = [0, 1] * 500
RR = ldp.RandomizedResponse


def identity(**change):
    return ldp.Identity(**{"name": "people", "label": "income", "rows": len(LABELS), "digest": "abc"} | change)


def open_vault(path, epsilon=1.0, labels=LABELS, **options):
    options = {"identity": identity()} | options
    return ldp.Vault(labels, SPACE, ldp.Budget(epsilon), ledger=path, **options)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "people.ledger"


def test_a_later_run_finds_what_an_earlier_one_spent(path):
    first = open_vault(path).release(RR(0.6))
    later = open_vault(path)
    assert later.guarantee().epsilon == 0.6
    assert (later.release(RR(0.6)).labels() == first.labels()).all()
    with pytest.raises(ldp.BudgetExceeded):
        later.release(RR(0.5))


def test_a_changed_label_opens_the_same_ledger(path):
    open_vault(path).release(RR(0.6))
    changed = open_vault(path, labels=[1, *LABELS[1:]])
    assert changed.guarantee().epsilon == 0.6


def test_nothing_about_labels_is_in_the_file(path, monkeypatch):
    secret = ldp.LabelSpace(["healthy", "rare-disease-xyz"])
    other = path.with_name("other")
    labels = ["rare-disease-xyz"] * 1000
    with monkeypatch.context() as same:
        same.setattr(uuid, "uuid4", lambda: uuid.UUID(int=7))  # each ledger has a random mark
        v = ldp.Vault(["healthy"] * 1000, secret, ldp.Budget(1.0), ledger=path, identity=identity())
        before = path.read_bytes()
        ldp.Vault(labels, secret, ldp.Budget(1.0), ledger=other, identity=identity())
    assert before == other.read_bytes()
    assert len(v.ledger.entries()) == 0


@pytest.mark.parametrize("change", [{"rows": 999}, {"digest": "abd"}, {"label": "age"}])
def test_another_data_set_is_refused(path, change):
    open_vault(path).release(RR(0.5))
    rows = change.get("rows", len(LABELS))
    with pytest.raises(ldp.LedgerError, match="belongs to other data"):
        open_vault(path, labels=LABELS[:rows], identity=identity(**change))


def test_a_renamed_data_set_with_the_same_features_is_the_same(path):
    open_vault(path).release(RR(0.5))
    assert open_vault(path, identity=identity(name="renamed")).guarantee().epsilon == 0.5


def test_without_a_digest_the_name_decides(path):
    open_vault(path, identity=identity(digest=None)).release(RR(0.5))
    with pytest.raises(ldp.LedgerError, match="belongs to other data"):
        open_vault(path, identity=identity(digest=None, name="others"))


def test_unit_and_composition_cannot_change(path):
    open_vault(path).release(RR(0.5))
    with pytest.raises(ldp.LedgerError, match="protects each label"):
        open_vault(path, users=np.arange(1000) // 2)
    with pytest.raises(ldp.LedgerError, match='adds up by "sum"'):
        ldp.Vault(LABELS, SPACE, ldp.Budget(1.0, 1e-5, "rdp"), ledger=path, identity=identity())


def test_a_ledger_without_an_entry_remembers_nothing(path):
    """As a command leaves it that was refused: whoever follows the advice must not be refused again."""
    open_vault(path, 0.1)
    open_vault(path, users=np.arange(1000) // 2)
    ldp.Vault(LABELS, SPACE, ldp.Budget(1.0, 1e-5, "rdp"), ledger=path, identity=identity())
    again = open_vault(path, 2.0, labels=LABELS[:10], identity=identity(rows=10))
    again.release(RR(2.0))
    assert [entry.kind for entry in again.ledger.entries()] == ["release"]
    assert ldp.Ledger(path).facts()["identity"]["rows"] == 10
    with pytest.raises(ldp.LedgerError, match="belongs to other data"):
        open_vault(path)


def test_a_vault_whose_ledger_went_to_other_data_cannot_spend(path):
    mine = open_vault(path)
    same = open_vault(path)
    theirs = open_vault(path, users=np.arange(1000) // 2)
    theirs.release(RR(0.1))
    theirs.plan(RR(0.1))
    for stale in (mine, same):
        for ask in (lambda v: v.release(RR(0.1)), lambda v: v.plan(RR(0.1)), lambda v: v.release(RR(0.2))):
            with pytest.raises(ldp.LedgerError, match="open the vault again"):
                ask(stale)
    assert [entry.kind for entry in theirs.ledger.entries()] == ["release", "plan"]


def test_a_plan_that_was_made_before_is_not_drawn_from_other_data(path):
    """Of a ledger that is copied into the place of another one, say: with an entry, none is bound anew."""
    mine = open_vault(path)
    plan = mine.plan(RR(0.1))
    mine.ledger.set_fact("mark", "of other data")
    with pytest.raises(ldp.LedgerError, match="open the vault again"):
        plan.release(RR(0.1))
    assert [entry.kind for entry in mine.ledger.entries()] == ["plan"]


def test_costs_at_another_renyi_order_are_not_charged(path):
    """The order is that of the first budget; what was priced at it while another one came must be priced again."""

    class Slow(RR):
        def prepare(self, codes, space, memory):
            renyi(1.0, 1e-6)
            return self

    def renyi(epsilon, delta):
        return ldp.Vault(LABELS, SPACE, ldp.Budget(epsilon, delta, "rdp"), ledger=path, identity=identity())

    mine = renyi(100.0, 1e-6)
    with pytest.raises(ldp.LedgerError, match="open the vault again"):
        mine.release(Slow(0.5))
    assert not mine.ledger.entries()


def test_a_total_that_nobody_gave_leaves_that_of_a_ledger_alone(path):
    seen = []

    def chosen(known):
        seen.append(known)
        return known or ldp.Budget(8.0)

    open_vault(path, 1.0).release(RR(1.0))
    again = ldp.Vault(LABELS, SPACE, chosen, ledger=path, identity=identity())
    assert again.budget == ldp.Budget(1.0)
    assert seen[-1] == ldp.Budget(1.0)
    assert [entry.kind for entry in again.ledger.entries()] == ["release"]


def test_a_ledger_from_before_there_were_marks_gets_one(path):
    open_vault(path).release(RR(0.25), rows=[1])
    with sqlite3.connect(path) as db:
        db.execute("delete from labeldp_dataset where key = 'mark'")
    first, second = open_vault(path), open_vault(path)
    assert first._mark == second._mark == ldp.Ledger(path).facts()["mark"]
    first.release(RR(0.5))
    assert second.guarantee().epsilon == 0.75


def test_vaults_of_the_same_data_share_a_ledger_from_the_start(path):
    first, second = open_vault(path), open_vault(path)
    first.release(RR(0.5))
    assert second.release(RR(0.5)).entry == first.ledger.entries()[0].id


def test_a_new_budget_is_written_down(path):
    open_vault(path, 1.0).release(RR(1.0))
    raised = open_vault(path, 2.0)
    raised.release(RR(0.9))
    kinds = [(e.kind, e.details["mechanism"]) for e in raised.ledger.entries()]
    assert kinds == [("release", "RandomizedResponse"), ("budget", "new budget"), ("release", "RandomizedResponse")]
    assert ldp.Ledger(path).facts()["budget"]["epsilon"] == 2.0


def test_a_budget_below_what_is_spent_is_refused_and_not_kept(path):
    open_vault(path, 1.0).release(RR(0.6))
    with pytest.raises(ldp.InputError, match=r"Epsilon 0\.6 and delta 0 are spent already"):
        open_vault(path, 0.5)
    assert ldp.Ledger(path).facts()["budget"]["epsilon"] == 1.0
    assert open_vault(path, 0.6).remaining() == (0.0, 0.0)


def test_a_file_needs_an_identity(path):
    with pytest.raises(ldp.InputError, match="say which by identity"):
        ldp.Vault(LABELS, SPACE, ldp.Budget(1.0), ledger=path)
    with pytest.raises(ldp.InputError, match="names 3 rows"):
        open_vault(path, identity=identity(rows=3))
    assert not path.exists()


def test_damaged_and_foreign_files(path, tmp_path):
    path.write_bytes(b"not a database, but long enough to look like one" * 40)
    with pytest.raises(ldp.LedgerError, match="damaged"):
        open_vault(path)
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as db:
        db.execute("create table recipes (name text)")
    with pytest.raises(ldp.LedgerError, match="not a labeldp ledger"):
        open_vault(foreign)
    with pytest.raises(ldp.LedgerError, match="is a folder"):
        open_vault(tmp_path)
    with pytest.raises(ldp.InputError, match="no folder"):
        open_vault(tmp_path / "nowhere" / "x.ledger")
    with pytest.raises(ldp.LedgerError, match="no ledger"):
        ldp.Ledger(tmp_path / "absent").facts()


def test_a_torn_file_is_noticed(path):
    open_vault(path).release(RR(0.5))
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(ldp.LedgerError, match="damaged"):
        open_vault(path).guarantee()


def test_a_ledger_in_use_says_so(path, monkeypatch):
    from filelock import FileLock

    from labeldp.vault import ledger

    monkeypatch.setattr(ledger, "_WAIT_SECONDS", 0.1)
    v = open_vault(path)
    with FileLock(f"{path}.lock"), pytest.raises(ldp.LedgerError, match="has been in use"):
        v.release(RR(0.5))
    assert v.guarantee().epsilon == 0


def test_redacted_entries_are_plain_json(path):
    v = open_vault(path)
    v.release(RR(0.5), rows=[1, 2])
    line = v.ledger.entries()[0].redacted()
    assert json.loads(json.dumps(line)) == line
    assert (line["epsilon"], line["released"], line["status"]) == (0.5, 2, "committed")
    assert "rows" not in line


def test_large_releases_are_stored_in_parts(path, monkeypatch):
    from labeldp.vault import ledger

    monkeypatch.setattr(ledger, "_PART", 100)
    first = open_vault(path).release(RR(0.5))
    assert (open_vault(path).release(RR(0.5)).labels() == first.labels()).all()


# A process that dies.

STEPS = {
    # where it dies: (what is spent afterwards, whether a release was kept)
    "before reserving": (0.0, False),
    "while checking the budget": (0.0, False),
    "while reserving": (0.0, False),
    "after reserving": (0.4, False),
    "after drawing": (0.4, False),
    "while storing": (0.4, False),
    "while committing": (0.4, False),
    "after committing": (0.4, True),
}

DYING = """
    import os, signal, sys
    import sqlalchemy as sa
    import labeldp as ldp
    from labeldp.vault.ledger import Ledger
    from labeldp.vault.vault import Vault

    def die(*_, **__):
        os.kill(os.getpid(), signal.SIGKILL)

    def dies_after(method):
        return lambda *a, **k: (method(*a, **k), die())

    step, path = sys.argv[1:]
    vault = ldp.Vault([0, 1] * 500, ldp.LabelSpace([0, 1]), ldp.Budget(1.0), ledger=path,
                      identity=ldp.Identity("people", "income", 1000, "abc"))

    def die_on(statement):
        def listener(conn, cursor, text, *_):
            if text.startswith(statement):
                die()
        sa.event.listen(vault.ledger._engine, "after_cursor_execute", listener)

    if step == "before reserving": Ledger.reserve = die
    if step == "while checking the budget": Vault._afford = die
    if step == "while reserving": die_on("INSERT INTO labeldp_entries")
    if step == "after reserving": Ledger.reserve = dies_after(Ledger.reserve)
    if step == "after drawing": ldp.RandomizedResponse.draw = dies_after(ldp.RandomizedResponse.draw)
    if step == "while storing": die_on("INSERT INTO labeldp_payloads")
    if step == "while committing": die_on("UPDATE labeldp_entries")
    if step == "after committing": Ledger.commit = dies_after(Ledger.commit)
    vault.release(ldp.RandomizedResponse(0.4))
"""


@pytest.mark.parametrize("step", STEPS)
def test_a_killed_process_never_understates_what_was_spent(path, step):
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(DYING), step, str(path)], capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    spent, kept = STEPS[step]
    v = open_vault(path)
    assert v.guarantee().epsilon == spent
    assert not in_progress(path)
    v.release(RR(0.4))
    assert v.guarantee().epsilon == pytest.approx(0.4 if kept or not spent else 0.8)


# Processes that race.


def _race(path, barrier, results, epsilon):
    v = open_vault(path)
    barrier.wait()
    try:
        results.put((os.getpid(), v.release(RR(epsilon)).labels().tobytes()))
    except ldp.BudgetExceeded:
        results.put((os.getpid(), None))


def race(path, epsilons):
    context = get_context("fork")
    barrier, results = context.Barrier(len(epsilons)), context.Queue()
    racers = [context.Process(target=_race, args=(path, barrier, results, e)) for e in epsilons]
    for racer in racers:
        racer.start()
    outcomes = [results.get(timeout=60)[1] for _ in racers]
    for racer in racers:
        racer.join()
    return outcomes


def test_eight_processes_never_exceed_one_budget(path):
    outcomes = race(path, [0.3 + i / 1000 for i in range(8)])
    assert sum(outcome is not None for outcome in outcomes) == 3
    assert open_vault(path).guarantee().epsilon <= 1.0


def test_eight_processes_with_one_request_get_one_release(path):
    outcomes = race(path, [0.5] * 8)
    assert len(set(outcomes)) == 1
    assert open_vault(path).guarantee().epsilon == 0.5


def _draw_step(plan, mechanism, results):
    try:
        results.put(plan.release(mechanism).entry)
    except ldp.LabelDPError as problem:
        results.put(type(problem).__name__)


def test_a_forked_plan_cannot_be_drawn_twice(path):
    v = open_vault(path)
    plan = v.plan(ldp.PureLoss(1.0))
    context = get_context("fork")
    results = context.Queue()
    child = context.Process(target=_draw_step, args=(plan, ldp.GroupHistogram(np.zeros(1000, int), 1.0), results))
    child.start()
    assert len(results.get(timeout=30)) == 32
    child.join()
    with pytest.raises(ldp.BudgetExceeded, match="drawn before"):
        plan.release(RR(1.0))


def test_a_ledger_in_memory_does_not_follow_a_fork():
    v = ldp.Vault(LABELS, SPACE, ldp.Budget(1.0))
    context = get_context("fork")
    said = context.Queue()

    def child():
        try:
            v.release(RR(1.0))
        except ldp.LedgerError as problem:
            said.put(str(problem))

    process = context.Process(target=child)
    process.start()
    assert "cannot follow a fork" in said.get(timeout=30)
    process.join()
