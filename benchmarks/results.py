"""What every benchmark needs: one core, and a file of results that names the machine."""

import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).parent


def use_one_core():
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def machine():
    names = [line.split(":")[1].strip() for line in _cpuinfo() if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
    }


def save(name, figures):
    path = HERE / "results" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    when = datetime.now(UTC).date().isoformat()
    path.write_text(json.dumps({"date": when, "machine": machine(), "figures": figures}, indent=2) + "\n")


def _cpuinfo():
    try:
        return Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []
