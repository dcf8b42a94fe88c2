import ctypes
import json
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from multiprocessing import get_context

import numpy as np
import pytest
from bound_vault import LABELS, RR, SPACE, identity, open_vault
from filelock import FileLock

import labeldp as ldp
from labeldp.accounting import PureLoss
from labeldp.data import Embeddings
from labeldp.mechanisms import GroupHistogram, LinearQuery
from labeldp.privacy.mechanisms.base import _fingerprint
from labeldp.privacy.vault import Ledger, ledger
from labeldp.privacy.vault.ledger import _explain_failure, is_in_use


def test_nothing_about_labels_is_in_the_file(path, monkeypatch):
    secret = ldp.LabelSpace(["healthy", "rare-disease-xyz"])
    other = path.with_name("other")
    labels = ["rare-disease-xyz"] * 1000
    with monkeypatch.context() as same:
        same.setattr(uuid, "uuid4", lambda: uuid.UUID(int=7))  # each ledger has a random mark
        same.setattr("labeldp.privacy.vault.ledger.now", lambda: "now")
        v = ldp.Vault(["healthy"] * 1000, secret, ldp.Budget(1.0), ledger=path, identity=identity())
        before = path.read_bytes()
        ldp.Vault(labels, secret, ldp.Budget(1.0), ledger=other, identity=identity())
    assert before == other.read_bytes()
    assert len(v.ledger.entries()) == 0


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
        Ledger(tmp_path / "absent").facts()


def test_a_ledger_that_is_deleted_while_it_is_open_does_not_come_back_empty(path):
    vault = open_vault(path)
    vault.release(RR(0.5))
    path.unlink()
    for ask in (lambda: vault.release(RR(0.25)), vault.guarantee, lambda: vault.plan(RR(0.1))):
        with pytest.raises(ldp.LedgerError, match="There is no ledger"):
            ask()
    assert not path.exists()


def test_a_ledger_that_cannot_be_written_can_be_read(path):
    open_vault(path).release(RR(0.5))
    path.chmod(0o400)
    assert [entry.status for entry in Ledger(path).entries()] == ["committed"]


def test_a_ledger_that_was_cut_off_to_nothing_is_not_a_new_one(path):
    open_vault(path).release(RR(0.5))
    path.write_bytes(b"")
    for ask in (lambda: open_vault(path), Ledger(path).entries):
        with pytest.raises(ldp.LedgerError, match="is empty, as if it had been cut off: restore it from a backup"):
            ask()


def test_a_process_that_dies_while_it_makes_a_ledger_leaves_none(path, monkeypatch):
    from labeldp.privacy.vault import schema

    def interrupt(db):
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr(schema, "create", interrupt)
        with pytest.raises(KeyboardInterrupt):
            open_vault(path)
    assert sorted(file.name for file in path.parent.iterdir()) == ["people.ledger.lock"]
    open_vault(path).release(RR(0.5))


@pytest.mark.parametrize("name", ["x" * 300, "a\0b"])
def test_a_name_that_no_file_can_have_is_refused(tmp_path, name):
    with pytest.raises(ldp.LedgerError, match="No file can have the name"):
        open_vault(f"{tmp_path}/{name}")


def test_a_full_disk_is_no_damage():
    """Who restored another ledger, or began one, would forget what was spent."""
    said = _explain_failure("people.ledger", "database or disk is full")
    assert "make room" in said
    assert "Keep it" in said
    assert "backup" not in said


def test_a_torn_file_is_noticed(path):
    open_vault(path).release(RR(0.5))
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(ldp.LedgerError, match="damaged"):
        open_vault(path).guarantee()


def test_a_ledger_in_use_says_so(path, monkeypatch):
    from filelock import FileLock

    monkeypatch.setattr(ledger, "_LOCK_TIMEOUT_SECONDS", 0.1)
    v = open_vault(path)
    with FileLock(f"{path}.lock"), pytest.raises(ldp.LedgerError, match="has been in use"):
        v.release(RR(0.5))
    assert v.guarantee().epsilon == 0


def test_redacted_entries_are_plain_json(path):
    v = open_vault(path)
    v.release(RR(0.5), row_selection=[1, 2])
    line = v.ledger.entries()[0].to_redacted_json()
    assert json.loads(json.dumps(line)) == line
    assert (line["epsilon"], line["released"], line["status"]) == (0.5, 2, "committed")
    assert "n_rows" not in line


def test_no_digest_travels(path):
    """Features that are public to one training may be secret records to the next."""
    vault = open_vault(path)
    vault.release(LinearQuery(np.eye(1000, 3), 0.5))
    assert "sha256" in vault.ledger.entries()[0].details["parameters"]["query"]
    redacted = vault.ledger.entries()[0].to_redacted_json()
    assert "sha256" not in json.dumps(redacted)
    assert "sha256" in json.dumps(_fingerprint(Embeddings(np.eye(3))))  # so that those of features are left out as well
    assert redacted["parameters"]["epsilon"] == 0.5


def test_large_releases_are_stored_in_parts(path, monkeypatch):
    monkeypatch.setattr(ledger, "_PART_BYTES", 100)
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
    from labeldp.privacy.vault import schema
    from labeldp.privacy.vault.ledger import Ledger
    from labeldp.privacy.vault.account import Account

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

    def commits():
        append = schema.append
        schema.append = lambda db, event: (append(db, event), event.kind == "commit" and die())

    if step == "before reserving": Ledger.reserve = die
    if step == "while checking the budget": Account.afford = die
    if step == "while reserving": die_on("INSERT INTO labeldp_events")
    if step == "after reserving": Ledger.reserve = dies_after(Ledger.reserve)
    if step == "after drawing": ldp.RandomizedResponse.draw = dies_after(ldp.RandomizedResponse.draw)
    if step == "while storing": die_on("INSERT INTO labeldp_payloads")
    if step == "while committing": commits()
    if step == "after committing": Ledger.commit = dies_after(Ledger.commit)
    vault.release(ldp.RandomizedResponse(0.4))
"""


@pytest.mark.parametrize("step", STEPS)
def test_a_killed_process_never_understates_what_was_spent(path, step):
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(DYING), step, str(path)], capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    spent, is_stored = STEPS[step]
    v = open_vault(path)
    assert v.guarantee().epsilon == spent
    assert not is_in_use(path)
    v.release(RR(0.4))
    assert v.guarantee().epsilon == 0.4  # nobody has seen what a killed process drew
    assert bool(v.reused_entries) == is_stored


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


def test_all_names_of_a_ledger_share_one_lock(path, tmp_path, monkeypatch):
    """Two names took two locks: the same request was then drawn twice, with different noise."""
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "same.ledger"
    link.symlink_to(path)
    monkeypatch.chdir(tmp_path / "links")
    names = [path, link, "same.ledger", tmp_path / "links" / ".." / "people.ledger"]
    ledgers = [open_vault(name).ledger for name in names]
    for holder in ledgers:
        with holder.exclusive_lock():
            assert all(is_in_use(name) for name in names)
    context = get_context("fork")
    barrier, results = context.Barrier(8), context.Queue()
    racers = [context.Process(target=_race, args=(names[i % 4], barrier, results, 0.5)) for i in range(8)]
    for racer in racers:
        racer.start()
    assert len({results.get(timeout=60)[1] for _ in racers}) == 1
    for racer in racers:
        racer.join()
    assert open_vault(path).guarantee().epsilon == 0.5


def test_a_ledger_with_several_hard_links_is_refused(path):
    """SQLite names its journal after the database: under another name, an interrupted write is not undone."""
    vault = open_vault(path)
    vault.release(RR(0.5))
    other = path.with_name("other.ledger")
    other.hardlink_to(path)
    for name in (path, other):
        with pytest.raises(ldp.LedgerError, match=r"several names \(hard links\).*copy it to a new file"):
            open_vault(name)
    with pytest.raises(ldp.LedgerError, match="hard links"):
        vault.release(RR(0.25))
    path.unlink()
    assert open_vault(other).guarantee().epsilon == 0.5


def test_a_child_does_not_inherit_the_lock(path):
    vault = open_vault(path)
    context = get_context("fork")
    results = context.Queue()
    with vault.ledger.exclusive_lock():
        child = context.Process(target=lambda: results.put(vault.ledger._lock_holder_pid == os.getpid()))
        child.start()
        assert results.get(timeout=30) is False
        child.join()


def _draw_step(plan, mechanism, results):
    try:
        results.put(plan.release(mechanism).entry)
    except ldp.LabelDPError as problem:
        results.put(type(problem).__name__)


def test_a_forked_plan_cannot_be_drawn_twice(path):
    v = open_vault(path)
    plan = v.plan(PureLoss(1.0))
    context = get_context("fork")
    results = context.Queue()
    child = context.Process(target=_draw_step, args=(plan, GroupHistogram(np.zeros(1000, int), 1.0), results))
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


def test_an_interruption_while_the_lock_is_taken_leaves_no_lock(path, monkeypatch):
    class Interrupted(FileLock):
        def acquire(self, *given, **more):
            super().acquire(*given, **more)
            raise KeyboardInterrupt

    used = open_vault(path)
    with monkeypatch.context() as patch:
        patch.setattr(ledger, "FileLock", Interrupted)
        with pytest.raises(KeyboardInterrupt) as caught:  # with its frames, as a notebook keeps the last exception
            used.release(RR(0.1))
    assert not is_in_use(path)
    assert caught.tb is not None


def test_missing_rows_of_the_last_release_are_damage_however_often_they_are_read(path):
    open_vault(path).release(RR(0.5), row_selection=range(10))
    with sqlite3.connect(path) as database:
        database.execute("DELETE FROM labeldp_row_sets")
    read = Ledger(path)
    for _ in range(2):
        with pytest.raises(ldp.LedgerError, match="damaged"):
            read.snapshot()


@pytest.mark.parametrize("fork", [os.fork, ctypes.PyDLL(None).fork])
def test_a_fork_while_another_thread_draws_does_not_block_the_child(path, monkeypatch, fork):
    vault, drawing, go_on, draw = open_vault(path), threading.Event(), threading.Event(), RR.draw

    def slow(*given):
        drawing.set()
        go_on.wait(10)
        return draw(*given)

    monkeypatch.setattr(RR, "draw", slow)
    thread = threading.Thread(target=vault.release, args=(RR(0.25),))
    thread.start()
    drawing.wait(10)
    child = fork()
    if child == 0:
        os._exit(0 if vault.guarantee().epsilon == 0.25 else 1)
    for _ in range(100):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.02)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        status = -1
    go_on.set()
    thread.join()
    assert status == 0


def test_a_draw_that_failed_stays_charged_and_is_not_taken_for_interrupted(path, monkeypatch):
    """Why it failed is not known, and might depend on labels: the same request is charged again."""

    def fails(*_):
        raise ValueError("no noise")

    with monkeypatch.context() as patched:
        patched.setattr(RR, "draw", fails)
        with pytest.raises(ValueError, match="no noise"):
            open_vault(path, 2.0).release(RR(0.6))
    again = open_vault(path, 2.0)
    assert [entry.status for entry in again.ledger.entries()] == ["failed"]
    assert again.guarantee().epsilon == 0.6
    assert not again.was_released(RR(0.6))
    again.release(RR(0.6))
    assert [entry.status for entry in open_vault(path, 2.0).ledger.entries()] == ["failed", "committed"]
    assert again.guarantee().epsilon == 1.2


def test_a_ledger_is_in_progress_while_somebody_holds_it(path):
    vault = open_vault(path)
    with vault.ledger.exclusive_lock():
        assert is_in_use(path)
    assert not is_in_use(path)


def test_a_failed_draw_is_charged_again_though_its_entry_was_read_before_it_failed(path, monkeypatch):
    vault = open_vault(path, 2.0)

    def fails(*_):
        assert [entry.status for entry in vault.ledger.entries()] == ["reserved"]
        raise ValueError("no noise")

    with monkeypatch.context() as patched:
        patched.setattr(RR, "draw", fails)
        with pytest.raises(ValueError, match="no noise"):
            vault.release(RR(0.6))
    assert [entry.status for entry in vault.ledger.entries()] == ["failed"]
    vault.release(RR(0.6))
    assert vault.guarantee().epsilon == 1.2


def test_times_are_those_of_greenwich(path):
    vault = open_vault(path)
    vault.release(RR(0.5))
    (entry,) = vault.ledger.entries()
    assert entry.created.endswith("+00:00")
    assert entry.finished.endswith("+00:00")


def test_a_ledger_of_one_row_is_read_again(path):
    for _ in range(2):
        vault = open_vault(path, labels=[1], identity=identity(n_rows=1))
        vault.release(RR(0.5))
        assert vault.guarantee().epsilon == 0.5
