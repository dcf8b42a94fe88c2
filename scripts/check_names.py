"""Fail if an identifier contains a word that CONTRIBUTING.md does not allow; `make lint` runs this.

    python scripts/check_names.py [FOLDER ...]

Names are read from the syntax tree and cut into words at underscores and capitals, so that comments, texts and
`outlook` are none of its business.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

FOLDERS = ("src", "tests", "benchmarks", "examples", "scripts")
FORBIDDEN = {  # and the standard term for what it was used for
    "abreast": "concatenated",
    "beforehand": "prior",
    "doubts": "warnings",
    "heard": "released, observed or used for training",
    "kept": "cached, stored or retained",
    "kinds": "clusters, types or dtypes",
    "lesson": "teacher data",
    "look": "query or inspect",
    "polls": "queries or votes",
    "strangers": "unseen categories",
    "surest": "most confident",
    "taught": "trained",
    "told": "released or reported",
}
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def identifiers(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of every name in a syntax tree."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.Name(id=name) | ast.Attribute(attr=name):
                yield node.lineno, name
            case ast.arg(arg=name) | ast.keyword(arg=str(name)):
                yield node.lineno, name
            case ast.alias(name=name, asname=other):
                yield node.lineno, other or name
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield node.lineno, name


def findings(path: Path) -> Iterator[str]:
    """Yield a message for every forbidden word in the names of a file."""
    for line, name in sorted(set(identifiers(ast.parse(path.read_text(encoding="utf-8"))))):
        for word in {found.lower() for found in _WORD.findall(name)} & FORBIDDEN.keys():
            yield f"{path}:{line}: {name!r} contains {word!r}: use the standard term ({FORBIDDEN[word]})."


def main(folders: list[str]) -> int:
    """Print every finding in some folders and return the exit status."""
    paths = [path for folder in folders or FOLDERS for path in sorted(Path(folder).rglob("*.py"))]
    found = [message for path in paths for message in findings(path)]
    print("\n".join(found) or f"No forbidden name in {len(paths)} files.")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
