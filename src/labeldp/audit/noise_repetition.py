"""A test that noise is not repeated: a seeded generator gives two new processes the same noise, which cancels.

No statistic of one process can show that: a seeded generator passes every test of its distribution. So a Python program
runs twice, each time in a new process, and the outputs are compared.
"""

import json
import subprocess
import sys
from typing import Any

import numpy as np

from labeldp.audit.event_selection import Outcomes
from labeldp.audit.mechanism_names import make_mechanism
from labeldp.audit.neighbor_pairs import worst_neighbor_pairs
from labeldp.core.errors import LabelDPError

_DRAWS = 4000
# Equal outputs are evidence of repeated noise where their probability by chance is at most this one.
_MAX_PROBABILITY = 1e-9

_PROGRAM = """
import json, sys
from labeldp.audit.noise_repetition import some_draws
print(json.dumps(some_draws(json.loads(sys.argv[1]))))
"""


def prints_same_twice(program: str, *arguments: str) -> bool:
    """Run a Python program in two new processes and return whether both print the same."""
    command = [sys.executable, "-c", program, *arguments]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]  # noqa: S603
    outputs = [process.communicate() for process in processes]
    if any(process.returncode for process in processes):
        message = ("\n".join(errors for _, errors in outputs).strip().splitlines() or ["no message"])[-1]
        raise LabelDPError(f"A fresh process could not draw: {message}")
    return outputs[0][0] == outputs[1][0]


def repeats_noise(name: str, epsilon: float, delta: float, classes: int = 2, queries: int = 1) -> bool | None:
    """Return whether a named mechanism draws the same in two new processes; None where that is likely by chance."""
    settings = {"name": name, "epsilon": epsilon, "delta": delta or None, "classes": classes, "queries": queries}
    if prints_same_twice(_PROGRAM, json.dumps(settings)):
        return None if collision_probability(_draw(settings)) > _MAX_PROBABILITY else True
    return False


def collision_probability(outcomes: Outcomes) -> float:
    """Estimate the probability that two samples of this distribution and size are equal, draw by draw."""
    _, counts = np.unique(outcomes, axis=0, return_counts=True)
    return float(np.sum((counts / counts.sum()) ** 2) ** len(outcomes))


def some_draws(settings: dict[str, Any]) -> list[list[int]]:
    """Return some releases of a named mechanism, as whole numbers."""
    outcomes: list[list[int]] = _draw(settings).tolist()
    return outcomes


def _draw(settings: dict[str, Any]) -> Outcomes:
    mechanism, _ = make_mechanism(**settings)
    return worst_neighbor_pairs(mechanism)[0].draw(0, _DRAWS)
