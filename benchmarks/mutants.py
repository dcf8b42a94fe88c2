"""Mutation testing of the private side: which small changes of the code does no test notice?

mutmut writes the mutants, finds the tests that reach each changed function and runs them. This script chooses what to
run: all mutants of the code that charges, and a sample, drawn with a fixed seed, of the rest of the private side.
Changes of messages are left out. It can be stopped and started again: what was killed is not run again, and what
survived is. Run `make mutants`, or `python benchmarks/mutants.py --list` to print the last results.
"""

import argparse
import ast
import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

from mutmut.stats import status_by_exit_code

ROOT = Path(__file__).parents[1]
MUTANTS = ROOT / "mutants"
CHARGES = ("accounting/costs", "accounting/filter", "privacy/vault/*")
SAMPLED = ("accounting/losses", "accounting/calibration", "core/exact_real", "privacy/noise/*", "privacy/mechanisms/*")
SAMPLED += tuple(f"privacy/teachers/{name}" for name in ("vote_accounting", "sanitizing", "teacher_votes"))
SIZE, SEED = 600, 22
MESSAGES = {"__repr__", "_explain_failure", "_describe_cap_choices"}  # functions that only make texts
KILLED = {"killed", "timeout"}
SLOW = ("a_killed_", "eight_processes", "agrees_with_opendp")  # tests that take seconds, by a part of their names
MONEY = tuple(f"tests/privacy/vault/test_{name}.py" for name in ("account", "release_plan", "vault"))
MONEY = ("tests/accounting/test_filter.py", *MONEY)
BOOKS = (*(f"tests/privacy/vault/test_{name}.py" for name in ("chain", "ledger", "schema")), *MONEY)
OWN = {  # the tests of a module, where they are not the file or the folder of its name
    "privacy.noise.secure_stream": (
        "tests/privacy/noise/test_secure_stream.py",
        "tests/privacy/noise/test_samplers.py",
    ),
    "accounting.calibration": (
        "tests/accounting/test_calibration.py",
        "tests/privacy/mechanisms/test_several_labels.py",
    ),
    "core.exact_real": (
        "tests/core/test_exact_real.py",
        "tests/privacy/noise/test_samplers.py",
        "tests/accounting/test_losses.py",
    ),
    "accounting.costs": (
        "tests/accounting/test_costs.py",
        "tests/privacy/vault/test_vault.py",
        "tests/privacy/vault/test_release_plan.py",
    ),
    "accounting.filter": MONEY,
    **dict.fromkeys((f"privacy.vault.{name}" for name in ("chain", "entries", "ledger", "schema")), BOOKS),
    **dict.fromkeys((f"privacy.vault.{name}" for name in ("account", "release_plan", "vault")), MONEY),
}


class _WithoutMessages(ast.NodeTransformer):
    """Blanks every text, and what an exception is raised with."""

    def visit_Constant(self, node):
        return ast.Constant("") if isinstance(node.value, str | bytes) else node

    def visit_JoinedStr(self, node):
        return ast.Constant("")

    def visit_Raise(self, node):
        kind = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        return ast.Raise(kind, None)


def meaningful(path):
    """Return the names of the mutants in a mutated file that change more than a message."""
    functions = {n.name: n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.FunctionDef)}
    plain = {
        name: ast.dump(ast.Module([*map(_WithoutMessages().visit, [node.args, *node.body])], []))
        for name, node in functions.items()
        if "__mutmut_" in name
    }
    for name, code in plain.items():
        function, _, number = name.rpartition("__mutmut_")
        own = function.rpartition("ǁ")[2].removeprefix("x_")
        if number.isdigit() and code != plain[f"{function}__mutmut_orig"] and own not in MESSAGES:
            yield name


def outcomes(patterns):
    """Return the status of each mutant of some modules that changes more than a message."""
    found = {}
    for path in sorted({path for each in patterns for path in (MUTANTS / "src/labeldp").glob(f"{each}.py")}):
        meta = path.with_name(f"{path.name}.meta")
        if not meta.is_file():
            continue
        known, keep = json.loads(meta.read_text())["exit_code_by_key"], set(meaningful(path))
        found |= {name: status_by_exit_code[code] for name, code in known.items() if name.rpartition(".")[2] in keep}
    return found


def chosen():
    """Return the status of every mutant that counts: of charges, and of the sample."""
    rest = outcomes(SAMPLED)  # ordered by digests, so that a change of the code changes little of the sample
    names = sorted(rest, key=lambda name: hashlib.sha256(f"{SEED} {name}".encode()).digest())[:SIZE]
    return outcomes(CHARGES), {name: rest[name] for name in sorted(names)}


def keep_own_tests():
    """Let the tests of a module judge its mutants: others reach them, too, but that is not what they are for.

    A test that finds in a cache what an earlier one computed does not seem to reach the function. So what has survived
    the tests that reach it is judged by all tests of their files.
    """
    path = MUTANTS / "mutmut-stats.json"
    stats = json.loads(path.read_text())
    survived = {name.rpartition("__mutmut_")[0] for part in chosen() for name in part if part[name] == "survived"}
    for function, tests in stats["tests_by_mangled_function_name"].items():
        name = function.removeprefix("labeldp.").partition(".x")[0]
        folder = name.rpartition(".")[0].replace(".", "/")
        own = OWN.get(name, (f"tests/{folder}/",))
        if function in survived:
            files = {test.partition("::")[0] for test in tests} | set(OWN.get(name, ()))
            tests = [test for test in stats["duration_by_test"] if test.partition("::")[0] in files]
        fast = [test for test in tests if test.startswith(own) and not any(part in test for part in SLOW)]
        stats["tests_by_mangled_function_name"][function] = fast or tests
    path.write_text(json.dumps(stats))


def mutmut(*words):
    environment = os.environ | {"PYTHONPATH": str(MUTANTS / "src"), "OMP_NUM_THREADS": "1"}
    (MUTANTS / "src").mkdir(parents=True, exist_ok=True)  # Python does not look again into a folder that was missing
    program = Path(sys.executable).with_name("mutmut")
    return subprocess.run([program, *words], cwd=ROOT, env=environment, check=False).returncode


def table(title, statuses):
    print(f"\n{title}")
    modules = {name: name.partition(".x")[0].removeprefix("labeldp.") for name in statuses}
    for module in [*dict.fromkeys(modules.values()), None]:
        count = Counter(status for name, status in statuses.items() if module in (None, modules[name]))
        killed = sum(count[status] for status in KILLED)
        others = ", ".join(f"{number} {status}" for status, number in count.items() if status not in KILLED)
        print(f"  {module or 'all':28} {killed:5} of {count.total():5} {killed / max(1, count.total()):7.1%}  {others}")
    for name, status in statuses.items():
        if status not in KILLED:
            print(f"    {status}: {name}")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--workers", type=int, default=2, help="mutants that are tested at the same time")
    options.add_argument("--only", choices=["charges", "sample"], help="run one of the two parts")
    options.add_argument("--list", action="store_true", help="print the last results and run nothing")
    given = options.parse_args()
    if not given.list:
        if not (MUTANTS / "mutmut-stats.json").is_file():  # any run writes all mutants, and finds their tests
            mutmut("run", "--max-children", "1", "labeldp.privacy.vault.release_plan.*")
        keep_own_tests()
        parts = dict(zip(("charges", "sample"), chosen(), strict=True))
        for name, statuses in parts.items():
            todo = [mutant for mutant, status in statuses.items() if status not in KILLED]
            if todo and given.only in (None, name):
                mutmut("run", "--max-children", str(given.workers), *todo)
    charges, sample = chosen()
    table("Code that charges: all mutants", charges)
    table(f"The rest of the private side: {len(sample)} mutants, drawn with the seed {SEED}", sample)


if __name__ == "__main__":
    main()
