"""Move modules by a table, and rewrite what names them.

    python tools/move.py tools/moves/1-core.tsv

Each line holds the old and the new name of a module below `labeldp`, separated by a tab. Files are moved with `git mv`,
their tests too. Dotted names are rewritten in code, tests, benchmarks, examples and documents, and new packages get an
`__init__`. `tests/noise_keys.json` records where each moved test was, because its noise is keyed by that.
"""

import ast
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path.cwd()
MARK = "@@"  # for `labeldp` in a line that is written anew already
TEXTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "pyproject.toml"]


def git(*words):
    subprocess.run(["git", *map(str, words)], check=True)


def move(old, new):
    new.parent.mkdir(parents=True, exist_ok=True)
    git("mv", old, new)


def module_file(name):
    path = ROOT / "src/labeldp" / name.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def test_file(name):
    *packages, last = name.split(".")
    return ROOT.joinpath("tests", *packages, f"test_{last}.py")


def main(table):
    moves = dict(line.split("\t") for line in pathlib.Path(table).read_text().splitlines() if line)
    keys_path = ROOT / "tests/noise_keys.json"
    keys = json.loads(keys_path.read_text()) if keys_path.exists() else {}
    modules = {str(p.relative_to(ROOT / "src").with_suffix("")).replace("/", ".") for p in (ROOT / "src").rglob("*.py")}
    packages = []
    docs = dict(line.split("\t") for line in (ROOT / "tools/packages.tsv").read_text().splitlines())
    for old, new in moves.items():
        folder = ROOT / "src/labeldp" / old.replace(".", "/")
        if folder.is_dir():
            packages.append((old, new))
            continue
        move(module_file(old), ROOT / "src/labeldp" / f"{new.replace('.', '/')}.py")
        if test_file(old).exists():
            move(test_file(old), test_file(new))
            moved(keys, test_file(old), test_file(new))
    for old, new in packages:  # what is left of a package: its __init__, data files, and tests of several modules
        for top in ("src/labeldp", "tests"):
            folder, target = ROOT / top / old.replace(".", "/"), ROOT / top / new.replace(".", "/")
            for path in sorted(folder.rglob("*")) if folder.is_dir() else []:
                if path.is_file() and "__pycache__" not in path.parts:
                    there = target / path.relative_to(folder)
                    if there.exists():
                        sys.exit(f"{there} exists")
                    move(path, there)
                    if top == "tests" and path.name.startswith("test_"):
                        moved(keys, path, there)
    for name in {".".join(new.split(".")[:depth]) for new in moves.values() for depth in range(1, new.count(".") + 1)}:
        init = ROOT / "src/labeldp" / name.replace(".", "/") / "__init__.py"
        if not init.exists():
            init.write_text(f'"""{docs[name]}"""\n')
            git("add", init)
    if keys:
        keys_path.write_text(json.dumps(dict(sorted(keys.items())), indent=1) + "\n")
        git("add", keys_path)
    rewrite(moves, modules)


def moved(keys, old, new):
    before, after = str(old.relative_to(ROOT)), str(new.relative_to(ROOT))
    keys[after] = keys.pop(before, before)


def rewrite(moves, modules):
    longest = sorted(moves, key=len, reverse=True)
    dotted = re.compile(r"\blabeldp\.(" + "|".join(map(re.escape, longest)) + r")(?![\w])(?!\.(?:py|npz|parquet)\b)")
    paths = re.compile(r"\b(src/labeldp)/(" + "|".join(re.escape(name.replace(".", "/")) for name in longest) + r")(?=\.py\b|/)")
    tests = re.compile(r"\btests/((?:\w+/)*)test_(\w+)\.py")
    code = [path for folder in ("src", "tests", "benchmarks", "examples") for path in (ROOT / folder).rglob("*.py")]
    for path in [*code, *TEXTS]:
        text = path.read_text()
        changed = from_packages(text, moves, modules) if path.suffix == ".py" else text
        if path.name == "__init__.py" and "exports(" in text:
            changed = exported(changed, path, moves)
        changed = dotted.sub(lambda match: f"labeldp.{moves[match[1]]}", changed)
        changed = paths.sub(lambda match: f"{match[1]}/{moves[match[2].replace('/', '.')].replace('.', '/')}", changed)
        changed = tests.sub(lambda match: moved_test(match, moves), changed)
        changed = changed.replace(MARK, "labeldp")
        if changed != text:
            path.write_text(changed)


def exported(text, path, moves):
    """Rewrite the names of modules in the table of names that a package loads at first use."""
    package = ".".join(path.relative_to(ROOT / "src/labeldp").parts[:-1])
    before = {new: old for old, new in moves.items()}.get(package, package)

    def renamed(match):
        old = f"{before}.{match[1]}".strip(".")
        new = moves.get(old, old)
        new = new if old in moves or not package else f"{package}.{match[1]}"
        if package and not new.startswith(f"{package}."):
            sys.exit(f"{path}: {old} leaves the package")
        return f'"{new.removeprefix(package).strip(".")}": ['

    return re.sub(r'"([\w.]+)": \[', renamed, text)


def moved_test(match, moves):
    name = (match[1] + match[2]).replace("/", ".")
    if name not in moves:
        return match[0]
    *packages, last = moves[name].split(".")
    return "/".join(["tests", *packages, f"test_{last}.py"])


def from_packages(text, moves, modules):
    """Rewrite `from labeldp.package import module`, keeping the name under which the module is used."""
    lines = text.splitlines(keepends=True)
    for node in reversed([n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ImportFrom)]):
        if not (node.module or "").startswith("labeldp") or node.level:
            continue
        package = node.module.removeprefix("labeldp").removeprefix(".")
        apart = [(a, moves[name]) for a in node.names if (name := f"{package}.{a.name}".strip(".")) in moves and f"labeldp.{name}" in modules | {f"labeldp.{m}" for m in moves}]
        if not apart:
            continue
        indent = " " * node.col_offset
        tail = re.sub(r"^.*?(#.*)?$", r"\1", lines[node.end_lineno - 1].rstrip("\n")) if "#" in lines[node.end_lineno - 1] else ""
        new = []
        rest = [a for a in node.names if a not in [each for each, _ in apart]]
        if rest:
            names = ", ".join(a.name + (f" as {a.asname}" if a.asname else "") for a in rest)
            new.append(f"{indent}from {node.module} import {names}{'  ' + tail if tail else ''}\n")
        for each, target in apart:
            parent, _, last = target.rpartition(".")
            used = each.asname or each.name
            alias = f" as {used}" if used != last or each.asname == last else ""
            home = f"{MARK}.{parent}" if parent else MARK
            new.append(f"{indent}from {home} import {last}{alias}{'  ' + tail if tail and not rest else ''}\n")
        lines[node.lineno - 1 : node.end_lineno] = new
    return "".join(lines)


if __name__ == "__main__":
    main(sys.argv[1])
