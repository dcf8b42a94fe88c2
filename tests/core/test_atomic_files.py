import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import labeldp as ldp
from labeldp.core.atomic_files import append_json_line, atomic_write, cached_array, check_writable, read_json_lines

HERE = os.environ | {"PYTHONPATH": str(Path(ldp.__file__).parents[1])}


def test_two_writers_do_not_mix(tmp_path):
    with atomic_write(tmp_path / "out") as second:
        second.write_text("second")
        with atomic_write(tmp_path / "out") as first:
            first.write_text("first")
        with pytest.raises(ldp.InputError, match="exists"), atomic_write(tmp_path / "out"):
            pass
        (tmp_path / "out").rename(tmp_path / "kept")
    assert (tmp_path / "kept").read_text() == "first"
    assert (tmp_path / "out").read_text() == "second"


def test_a_file_that_appears_during_writing_is_not_overwritten(tmp_path):
    def write():
        with atomic_write(tmp_path / "out") as partial:
            partial.write_text("late")
            (tmp_path / "out").write_text("early")

    with pytest.raises(ldp.InputError, match="exists"):
        write()
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out").read_text() == "early"


def test_overwriting_replaces_the_existing_file(tmp_path):
    (tmp_path / "out").write_text("old")
    with atomic_write(tmp_path / "out", overwrite=True) as partial:
        partial.write_text("new")
    with pytest.raises(TypeError), atomic_write(tmp_path / "out", overwrite=True) as partial:
        partial.write_text(None)
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out").read_text() == "new"


WRITE_FOREVER = """
import sys, time
from pathlib import Path
from labeldp.core.atomic_files import atomic_write
with atomic_write(Path(sys.argv[1])) as partial:
    if sys.argv[2] == "folder":
        partial.mkdir()
        (partial / "part").write_text("x")
    if sys.argv[2] == "file":
        partial.write_text("x")
    print("written", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("kind", ["file", "folder", "nothing yet"])
def test_leftovers_of_a_killed_process_are_removed_by_the_next_writer(tmp_path, kind):
    out = tmp_path / "out[1].csv"  # no pattern of its own
    other = tmp_path / ".out[1].csv.0123abcd.partial.csv"
    other.write_text("of somebody else")
    with subprocess.Popen(
        [sys.executable, "-c", WRITE_FOREVER, out, kind], stdout=subprocess.PIPE, env=HERE
    ) as process:
        assert process.stdout.readline() == b"written\n"
        before = {path.name for path in tmp_path.iterdir()}
        with atomic_write(out) as partial:
            partial.write_text("of the first")
        assert {path.name for path in tmp_path.iterdir()} == before | {out.name}  # the process is still running
        out.unlink()
        process.kill()
    assert len(before) > 1
    with atomic_write(out) as partial:
        partial.write_text("of the second")
    assert {path.name for path in tmp_path.iterdir()} == {out.name, other.name}
    assert out.read_text() == "of the second"


def test_leftovers_without_a_lock_are_removed(tmp_path):
    (tmp_path / ".out.0123abcd.partial").mkdir()
    with atomic_write(tmp_path / "out") as partial:
        partial.write_text("x")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_array_is_computed_once_and_stored_completely(tmp_path):
    made, path = [], tmp_path / "rows.npy"

    def make(fails=False):
        made.append(fails)
        if fails:
            raise RuntimeError
        return np.arange(3)

    with pytest.raises(RuntimeError):
        cached_array(path, lambda: make(fails=True))
    assert not path.exists()
    assert [cached_array(path, make).tolist() for _ in range(2)] == [[0, 1, 2]] * 2
    assert cached_array(None, make).tolist() == [0, 1, 2]
    assert made == [True, False, False]


def test_paths_that_cannot_be_written_are_refused_at_once(tmp_path):
    (tmp_path / "there.csv").write_text("")
    with pytest.raises(ldp.InputError, match="exists"):
        check_writable(tmp_path / "there.csv")
    with pytest.raises(ldp.InputError, match=r"must end in \.npz"):
        check_writable(tmp_path / "x.csv", ".npz")
    with pytest.raises(ldp.InputError, match="no folder"):
        check_writable(tmp_path / "absent" / "x.csv")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(ldp.InputError, match="cannot be written"):
        check_writable(tmp_path / "x.csv")


def test_a_truncated_line_does_not_affect_the_others(tmp_path):
    path = tmp_path / "lines.jsonl"
    assert read_json_lines(path) == []
    append_json_line(path, {"a": 1})
    with path.open("a") as file:
        file.write('{"a": 2, "b')
    append_json_line(path, {"a": 3})
    append_json_line(path, {"a": 4})
    assert read_json_lines(path) == [{"a": 1}, {"a": 3}, {"a": 4}]
