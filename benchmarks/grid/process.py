"""Work in processes of their own, on one thread, with a time limit, and a meter of what it took."""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

BENCHMARKS = Path(__file__).parents[1]
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")
_MARK = "RESULT "


class Meter:
    """CPU seconds (user and system), wall seconds and peak memory from here to `stop`."""

    def __init__(self):
        self._cpu, self._wall = _cpu_seconds(), time.perf_counter()

    def stop(self):
        """Return the figures. The peak is that of the whole process, with the libraries that it has imported."""
        cpu, wall = _cpu_seconds() - self._cpu, time.perf_counter() - self._wall
        return {"cpu_seconds": round(cpu, 2), "wall_seconds": round(wall, 2), "peak_mb": round(_peak_mb())}


def _cpu_seconds():
    return sum(os.times()[:4])  # of this process and of its children that have ended


def _peak_mb():
    try:  # the peak of getrusage can be that of the parent, which a new process inherits
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
    except (OSError, StopIteration):
        unit = 2**20 if sys.platform == "darwin" else 2**10
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def run_child(module, request, limit):
    """Run a module of this folder on a request, at most `limit` seconds long, and return what it `answer`s.

    The field "status" of the answer is "ok", "over the limit" or "failed"; a failure has its last line as "error".
    """
    path = [str(BENCHMARKS), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment = os.environ | dict.fromkeys(_THREADS, "1") | {"PYTHONPATH": os.pathsep.join(filter(None, path))}
    command = [sys.executable, "-W", "ignore", "-m", module, json.dumps(request)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"status": "over the limit", "limit": limit}
    answers = [line for line in done.stdout.splitlines() if line.startswith(_MARK)]
    if done.returncode or not answers:
        errors = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return {"status": "failed", "error": errors[-1][:500]}
    return {"status": "ok"} | json.loads(answers[-1].removeprefix(_MARK))


def request():
    """Return the request that this process was started with."""
    return json.loads(sys.argv[1])


def answer(figures):
    """Give figures to the process that waits for them."""
    print(_MARK + json.dumps(figures), flush=True)


def code_version():
    """Return the commit of the code, with "-dirty" where the library or a benchmark differs from it."""

    def git(*words):
        return subprocess.run(["git", *words], capture_output=True, text=True, cwd=BENCHMARKS)

    commit = git("describe", "--always").stdout.strip() or "unknown"
    changed = git("diff", "--quiet", "HEAD", "--", "../src", ".", ":!results").returncode
    return commit + "-dirty" * bool(changed)
