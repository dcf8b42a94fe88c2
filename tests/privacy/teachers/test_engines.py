import os
import signal
import subprocess
import sys
import threading
import time

import jobs
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import labeldp as ldp
from labeldp.data import Embeddings
from labeldp.privacy.teachers import engines
from labeldp.privacy.teachers.networks import Networks
from labeldp.privacy.teachers.partition import assign_teachers
from labeldp.privacy.teachers.teacher_data import TeacherData

ENGINES = ["here", "processes", "ray"]


@pytest.fixture(scope="module", autouse=True)
def local_ray():
    """One local cluster for all tests here: starting one takes seconds."""
    import ray

    paths = [os.path.dirname(jobs.__file__), os.environ.get("PYTHONPATH", "")]  # where workers find `jobs`
    beside = {"env_vars": {"PYTHONPATH": os.pathsep.join(paths)}}
    ray.init(num_cpus=2, log_to_driver=False, include_dashboard=False, logging_level="ERROR", runtime_env=beside)
    yield
    ray.shutdown()


@pytest.mark.parametrize("engine", ENGINES)
def test_results_come_in_the_order_of_the_jobs(engine):
    seen = []
    found = engines.run(jobs.square, 100, range(7), engine, workers=2, on_job_done=lambda: seen.append(1))
    assert found == [100 + job * job for job in range(7)]
    assert len(seen) == 7


def kill_whoever_does(job, folder):
    while not (begun := list(folder.glob(f"begun-{job}-*"))):
        time.sleep(0.05)
    os.kill(int(begun[0].name.rpartition("-")[2]), signal.SIGKILL)


@pytest.mark.parametrize("engine", ENGINES[1:])
def test_a_killed_worker_costs_its_own_job_alone(engine, tmp_path):
    killer = threading.Thread(target=kill_whoever_does, args=(2, tmp_path))
    killer.start()
    assert engines.run(jobs.leave_a_note, str(tmp_path), range(8), engine, workers=2) == list(range(8))
    killer.join()
    begun = [int(note.name.split("-")[1]) for note in tmp_path.glob("begun-*")]
    done = [int(note.name.split("-")[1]) for note in tmp_path.glob("done-*")]
    assert sorted(begun) == sorted([*range(8), 2])
    assert sorted(done) == list(range(8))


@pytest.mark.parametrize("engine", ENGINES[1:])
def test_every_teacher_is_trained_once_on_its_own_part_though_a_worker_was_killed(engine, tmp_path):
    codes, teacher = np.arange(600).astype(np.int32) % 3, assign_teachers(np.ones(600, bool), 6, 0)
    rows = Embeddings(np.eye(3, dtype=np.float32)[codes] + 0.01)
    classifier = LogisticRegression()
    classifier.noted_in = str(tmp_path)
    how = Networks(jobs.Noting(classifier), engine=engine, workers=2)
    killer = threading.Thread(target=kill_whoever_does, args=(0, tmp_path))
    killer.start()
    space = ldp.LabelSpace(["a", "b", "c"])
    counts = how.count_votes(TeacherData(rows, codes, teacher, rows, space))
    killer.join()
    parts = ["".join(map(str, codes[teacher == number])) for number in range(6)]
    assert sorted((tmp_path / "trained").read_text().split()) == sorted(parts)
    assert np.array_equal(counts, 6 * np.eye(3, dtype=int)[codes])


@pytest.mark.parametrize("engine", ENGINES[1:])
def test_a_worker_that_always_dies_is_given_up(engine):
    with pytest.raises(ldp.LabelDPError, match="died 2 times over one teacher"):
        engines.run(jobs.die, None, [1], engine, workers=1, retries=1)


@pytest.mark.parametrize("engine", ENGINES[1:])
def test_an_error_in_a_worker_is_reported_without_its_message(engine):
    with pytest.raises(ldp.LabelDPError, match="ValueError") as problem:
        engines.run(jobs.fail_with_a_secret, None, [1], engine, workers=1)
    assert "7" not in str(problem.value)
    assert problem.value.__cause__ is None
    assert problem.value.__suppress_context__ or problem.value.__context__ is None


def test_an_interrupt_leaves_no_worker_behind(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {os.path.dirname(jobs.__file__)!r})\n"
        "import jobs\nfrom labeldp.privacy.teachers import engines\n"
        f"if __name__ == '__main__': engines.run(jobs.leave_a_note, {str(tmp_path)!r}, [2, 2], workers=1)\n"
    )
    running = subprocess.Popen([sys.executable, str(script)], stderr=subprocess.PIPE, start_new_session=True)
    while not (begun := list(tmp_path.glob("begun-2-*"))):
        assert running.poll() is None
        time.sleep(0.05)
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does: to the workers, too
    assert b"KeyboardInterrupt" in running.communicate(timeout=60)[1]
    with pytest.raises(ProcessLookupError):
        os.kill(int(begun[0].name.rpartition("-")[2]), 0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"engine": "gpu"}, "no engine 'gpu'"), ({"workers": 0}, "at least one worker")],
)
def test_bad_settings(settings, message):
    with pytest.raises(ldp.InputError, match=message):
        engines.run(jobs.square, 0, [1], **{"engine": "here"} | settings)
