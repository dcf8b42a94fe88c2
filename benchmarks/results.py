"""What every benchmark needs: one core, a clock for trainings, and a file of results that names the machine."""

import json
import os
import platform
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).parent


def use_one_core():
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


class Clock:
    """The seconds of each epoch of a training, to be given as its `progress`.

    The first epoch also prepares: it compiles, records CUDA graphs and looks for the fastest convolutions. What
    `watch(epoch)` does between two epochs is not counted.
    """

    def __init__(self, watch=None):
        self.epochs, self._watch = [], watch
        self._last_time = time.perf_counter()

    def __call__(self, epoch, loss):
        self.epochs.append(time.perf_counter() - self._last_time)
        if self._watch is not None:
            self._watch(epoch, loss)
        self._last_time = time.perf_counter()

    @property
    def epoch(self):
        """Seconds of an epoch, the first one left out."""
        rest = self.epochs[1:] or self.epochs
        return sum(rest) / len(rest)

    def figures(self):
        """What a training took, preparation apart."""
        return {
            "epochs": len(self.epochs),
            "seconds an epoch": round(self.epoch, 4),
            "seconds of training": round(self.epoch * len(self.epochs), 1),
            "seconds of preparation": round(self.epochs[0] - self.epoch, 1),
        }


def machine():
    names = [line.split(":")[1].strip() for line in _cpuinfo() if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
    } | _gpu()


def save(name, figures):
    path = HERE / "results" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    when = datetime.now(UTC).date().isoformat()
    path.write_text(json.dumps({"date": when, "machine": machine(), "figures": figures}, indent=2) + "\n")


def read(name):
    """Return the figures that were saved by this name, none if there are none."""
    path = HERE / "results" / f"{name}.json"
    return json.loads(path.read_text())["figures"] if path.is_file() else {}


def show(figures):
    """Print figures as two columns."""
    for name, value in figures.items():
        print(f"  {name:<28}{value:>12,.4f}" if isinstance(value, float) else f"  {name:<28}{value!s:>12}", flush=True)


def _gpu():
    torch = sys.modules.get("torch")  # a benchmark without torch has no use for a GPU
    if torch is None or not torch.cuda.is_available():
        return {}
    return {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}


def _cpuinfo():
    try:
        return Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []
