"""Rename identifiers by a table, with the type inference of basedpyright.

    python tools/rename.py tools/names/learn.tsv

Each line of a table holds a glob of files, a qualified name and the new name, separated by tabs:

    src/labeldp/learn/base.py    follow             update_ema
    src/labeldp/learn/base.py    follow.inertia     ema_decay       (a parameter or local variable)
    src/labeldp/**/*.py          *.told             released_parameters   (this member of every class)
    src/labeldp/runs/*.py        "strangers"        unseen_categories     (a string literal equal to it)

All names are looked up in the tree as it is, then all edits are applied at once. Attributes and keyword arguments whose
type basedpyright cannot infer (in tests) are renamed by name, if no definition in `src/` has the old name any more.
"""

import ast
import collections
import io
import json
import pathlib
import re
import subprocess
import sys
import time
import tokenize

ROOT = pathlib.Path.cwd()
CODE = ("src", "tests", "benchmarks", "examples")
# Attributes and keywords of other libraries, and modules: they are not renamed by name alone.
FOREIGN = set(
    "affine printable corrupt balanced Column when at heads which real columns parts done show choices poll name rows take map shape labels classes count start left right data text sum "
    "values index items keys get add set update copy pop append path file size find split fixmatch augdescent pate first "
    "last mean best low high kind schema"
    .split()
)
Edit = tuple[int, int, int, str]  # line, first and last column (in code points), new text


class Server:
    """A language server, asked one question at a time."""

    def __init__(self) -> None:
        program = pathlib.Path(sys.executable).with_name("basedpyright-langserver")
        self._process = subprocess.Popen([program, "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._last = 0
        folder = {"uri": ROOT.as_uri(), "name": "root"}
        self.ask("initialize", processId=None, rootUri=ROOT.as_uri(), workspaceFolders=[folder], capabilities={
            "workspace": {"configuration": True, "workspaceFolders": True, "workspaceEdit": {"documentChanges": False}},
            "textDocument": {"rename": {"prepareSupport": True}}})
        self._send(method="initialized", params={})

    def ask(self, method: str, **params):
        self._last += 1
        self._send(id=self._last, method=method, params=params)
        while True:
            message = self._read()
            if message.get("id") == self._last and "method" not in message:
                return message.get("result") if "error" not in message else {"error": message["error"]}
            if "id" in message and "method" in message:
                self._send(id=message["id"], result=self._answer(message))

    def notify(self, method: str, **params):
        self._send(method=method, params=params)

    def _answer(self, message):
        if message["method"] != "workspace/configuration":
            return None
        analysis = {"diagnosticMode": "openFilesOnly", "typeCheckingMode": "off", "autoSearchPaths": True,
                    "include": [folder for folder in CODE if (ROOT / folder).exists()], "useLibraryCodeForTypes": True}
        python = {"pythonPath": sys.executable, "analysis": analysis}
        known = {"python": python, "python.analysis": analysis, "basedpyright": {"analysis": analysis},
                 "basedpyright.analysis": analysis}
        return [known.get(item.get("section"), {}) for item in message["params"]["items"]]

    def _send(self, **message):
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._process.stdin.write(f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        self._process.stdin.flush()

    def _read(self):
        length = 0
        while (line := self._process.stdout.readline().strip()):
            if line.lower().startswith(b"content-length"):
                length = int(line.split(b":")[1])
        return json.loads(self._process.stdout.read(length))


def scopes(tree):
    """Yield (qualified name, node that holds the token, name) of every definition, parameter, variable and attribute."""
    def visit(node, path, owner):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                here = [*path, child.name]
                yield here, child, child.name
                if not isinstance(child, ast.ClassDef):
                    arguments = child.args
                    for each in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]:
                        if each is not None:
                            yield [*here, each.arg], each, each.arg
                yield from visit(child, here, child if isinstance(child, ast.ClassDef) else owner)
            else:
                if isinstance(child, ast.arg):
                    if isinstance(node, ast.arguments) and path and False:
                        pass
                if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                    yield [*path, child.id], child, child.id
                elif isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Store) and isinstance(child.value, ast.Name) and child.value.id == "self" and owner is not None:
                    yield [*path[: path.index(owner.name) + 1], child.attr], child, child.attr
                elif isinstance(child, ast.alias) and child.asname:
                    yield [*path, child.asname], child, child.asname
                elif isinstance(child, ast.ExceptHandler) and child.name:
                    yield [*path, child.name], child, child.name
                elif isinstance(child, ast.MatchAs) and child.name:
                    yield [*path, child.name], child, child.name
                if isinstance(child, ast.Lambda):
                    for each in [*child.args.args, *child.args.kwonlyargs, child.args.vararg, child.args.kwarg]:
                        if each is not None:
                            yield [*path, each.arg], each, each.arg
                yield from visit(child, path, owner)
    yield from visit(tree, [], None)


def position(lines, node, name):
    """Return the line (from 0) and column in code points of a name's token."""
    first, column = node.lineno - 1, node.col_offset
    if isinstance(node, ast.Attribute):
        first, column = node.end_lineno - 1, node.end_col_offset - len(name.encode())
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.alias | ast.ExceptHandler | ast.MatchAs):
        for row in range(first, node.end_lineno):
            start = len(lines[row].encode()[:column].decode()) if row == first else 0
            pattern = rf"(?:def|class)\s+({re.escape(name)})\b" if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else rf"\bas\s+({re.escape(name)})\b"
            if isinstance(node, ast.MatchAs):
                pattern = rf"\b({re.escape(name)})\b"
            if match := re.compile(pattern).search(lines[row], start):
                return row, match.start(1)
    return first, len(lines[first].encode()[:column].decode())


def read_table(paths):
    for path in paths:
        for number, line in enumerate(pathlib.Path(path).read_text().splitlines(), 1):
            if line.strip() and not line.startswith("#"):
                parts = line.split("\t")
                if len(parts) != 3:
                    sys.exit(f"{path}:{number}: not three columns: {line!r}")
                yield f"{path}:{number}", *parts


def matches(qualified, wanted):
    if wanted[0] == "*":
        return len(qualified) >= len(wanted) and all(w in ("*", q) for q, w in zip(qualified[-len(wanted):], wanted, strict=True))
    return qualified == wanted


def main(tables):
    trees, texts = {}, {}
    for folder in CODE:
        for path in sorted((ROOT / folder).rglob("*.py")):
            texts[path] = path.read_text()
            trees[path] = ast.parse(texts[path])
    server, edits, problems = Server(), collections.defaultdict(dict), []
    renamed, opened = {}, set()
    known = {path: list(scopes(tree)) for path, tree in trees.items()}
    for place, glob, name, new in read_table(tables):
        files = [path for path in ROOT.glob(glob) if path in texts]
        if not files:
            problems.append(f"{place}: no file {glob}")
        if name.startswith('"'):
            found = False
            for path in files:
                for node in ast.walk(trees[path]):
                    if isinstance(node, ast.Constant) and node.value == name.strip('"') and node.lineno == node.end_lineno:
                        lines = texts[path].splitlines()
                        line = lines[node.lineno - 1]
                        start = len(line.encode()[: node.col_offset].decode())
                        end = len(line.encode()[: node.end_col_offset].decode())
                        literal = line[start:end]
                        edits[path][(node.lineno - 1, start, end)] = (literal.replace(name.strip('"'), new), place)
                        found = True
            if not found:
                problems.append(f"{place}: no literal {name} in {glob}")
            continue
        wanted, found = name.split("."), False
        for path in files:
            lines, done = texts[path].splitlines(), set()
            for qualified, node, old in known[path]:
                if not matches(qualified, wanted):
                    continue
                row, column = position(lines, node, old)
                if (row, column, column + len(old)) in edits[path]:
                    found = True
                    if edits[path][(row, column, column + len(old))][0] != new:
                        problems.append(f"{place}: {name} is renamed by {edits[path][(row, column, column + len(old))]} already")
                    continue
                uri = path.as_uri()
                if path not in opened:
                    server.notify("textDocument/didOpen", textDocument={"uri": uri, "languageId": "python", "version": 1, "text": texts[path]})
                    opened.add(path)
                if not any(edits.values()):  # before its index is complete, the server misses other files
                    utf16 = len(lines[row][:column].encode("utf-16-le")) // 2
                    place_of = {"textDocument": {"uri": uri}, "position": {"line": row, "character": utf16}}
                    server.ask("textDocument/rename", **place_of, newName=new)
                    time.sleep(20)
                utf16 = len(lines[row][:column].encode("utf-16-le")) // 2
                answer = server.ask("textDocument/rename", textDocument={"uri": uri}, position={"line": row, "character": utf16}, newName=new)
                changes = (answer or {}).get("changes") or {}
                if answer and "documentChanges" in answer:
                    changes = {each["textDocument"]["uri"]: each["edits"] for each in answer["documentChanges"] if "textDocument" in each}
                if not changes:
                    problems.append(f"{place}: the server renames nothing at {path}:{row + 1}: {answer}")
                    continue
                found = True
                for target, each in changes.items():
                    import urllib.parse
                    file = pathlib.Path(urllib.parse.unquote(urllib.parse.urlparse(target).path))
                    if file not in texts:
                        problems.append(f"{place}: edits {file}")
                        continue
                    target_lines = texts[file].splitlines()
                    for edit in each:
                        line = target_lines[edit["range"]["start"]["line"]]
                        cut = lambda units, line=line: len(line.encode("utf-16-le")[: 2 * units].decode("utf-16-le"))
                        span = (edit["range"]["start"]["line"], cut(edit["range"]["start"]["character"]), cut(edit["range"]["end"]["character"]))
                        before = edits[file].get(span)
                        if before and before[0] != edit["newText"]:
                            problems.append(f"{place}: {file}:{span[0] + 1} becomes {before[0]} by {before[1]} and {edit['newText']}")
                            continue
                        edits[file][span] = (edit["newText"], place)
                member = len(qualified) > 1 and qualified[-2].strip("_")[:1].isupper()
                if member or not isinstance(node, ast.Name):  # a local variable has no uses elsewhere
                    renamed.setdefault(old, set()).add(new)
        if not found:
            problems.append(f"{place}: no {name} in {glob}")
    for path, spans in edits.items():
        lines = texts[path].splitlines(keepends=True)
        for (row, start, end), (new, _) in sorted(spans.items(), reverse=True):
            lines[row] = lines[row][:start] + new + lines[row][end:]
        path.write_text("".join(lines))
    leftovers(renamed)
    print("\n".join(problems))
    print(sum(map(len, edits.values())), "edits in", len(edits), "files;", len(problems), "problems")


def leftovers(renamed):
    """Rename attributes and keywords that the server could not infer, where the old name is defined nowhere any more."""
    defined = set()
    for path in (ROOT / "src").rglob("*.py"):
        tree = ast.parse(path.read_text())
        defined |= {name for _, _, name in scopes(tree)}
    gone = {old: next(iter(news)) for old, news in renamed.items() if old not in defined and len(news) == 1}
    for folder in CODE:
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text()
            local = {name for qualified, _, name in scopes(ast.parse(text))}
            unseen = (tokenize.NL, tokenize.COMMENT)
            tokens = [t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type not in unseen]
            lines, spans = text.splitlines(keepends=True), []
            for before, token, after in zip(tokens, tokens[1:], tokens[2:]):
                if token.type != tokenize.NAME or token.string not in gone or token.string in FOREIGN:
                    continue
                if re.match(r"\s*(from|import) ", token.line):
                    continue
                attribute = before.string == "."
                keyword = after.string == "=" and before.string in ("(", ",") and after.end[1] - after.start[1] == 1
                if attribute or (keyword and token.string not in local):
                    spans.append((token.start, token.end, gone[token.string]))
            for start, end, new in reversed(spans):
                row = start[0] - 1
                lines[row] = lines[row][: start[1]] + new + lines[row][end[1] :]
            if spans:
                path.write_text("".join(lines))
                for start, _, new in spans:
                    print(f"{path.relative_to(ROOT)}:{start[0]}: {new}: {lines[start[0] - 1].strip()}")


if __name__ == "__main__":
    main(sys.argv[1:])
