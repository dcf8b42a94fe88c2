"""Is the noise drawn anew? A seeded generator gives two fresh processes the same release, and equal noise cancels.

No statistic of one process can show that: a seeded generator passes every test of its law. So a Python program is run
twice, each time in a new process, and what it prints is compared.
"""

import json
import subprocess
import sys
from typing import Any

import numpy as np

from labeldp.audit.events import Outcomes
from labeldp.audit.named import named
from labeldp.audit.worlds import worst_worlds
from labeldp.core.errors import LabelDPError

_DRAWS = 4000
_LUCK = 1e-9  # equal outputs that are likelier than this by chance say nothing

_PROGRAM = """
import json, sys
from labeldp.audit.fresh import some_draws
print(json.dumps(some_draws(json.loads(sys.argv[1]))))
"""


def same_twice(program: str, *words: str) -> bool:
    """Run a Python program in two fresh processes and return whether both print the same."""
    command = [sys.executable, "-c", program, *words]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]  # noqa: S603
    said = [process.communicate() for process in both]
    if any(process.returncode for process in both):
        last = ("\n".join(errors for _, errors in said).strip().splitlines() or ["no message"])[-1]
        raise LabelDPError(f"A fresh process could not draw: {last}")
    return said[0][0] == said[1][0]


def repeats(name: str, epsilon: float, delta: float, classes: int = 2, queries: int = 1) -> bool | None:
    """Return whether a named mechanism draws the same in two fresh processes; None where chance could do that, too."""
    asked = {"name": name, "epsilon": epsilon, "delta": delta or None, "classes": classes, "queries": queries}
    if same_twice(_PROGRAM, json.dumps(asked)):
        return None if equal_by_chance(_draw(asked)) > _LUCK else True
    return False


def equal_by_chance(outcomes: Outcomes) -> float:
    """Estimate the chance that as many independent draws of this law would be equal, one by one."""
    _, counts = np.unique(outcomes, axis=0, return_counts=True)
    return float(np.sum((counts / counts.sum()) ** 2) ** len(outcomes))


def some_draws(asked: dict[str, Any]) -> list[list[int]]:
    """Return some releases of a named mechanism, as whole numbers."""
    drawn: list[list[int]] = _draw(asked).tolist()
    return drawn


def _draw(asked: dict[str, Any]) -> Outcomes:
    mechanism, _ = named(**asked)
    return worst_worlds(mechanism)[0].draw(0, _DRAWS)
