"""No value becomes text of a statement: whatever is executed is made of constants, identifiers and numbers.

Read off the code: the text of every statement is followed back through variables, parameters and functions, by name,
to where it was written. Values of strangers are bound instead; what DuckDB can't bind is quoted by ``literal``, in the
places that ``QUOTED`` names and nowhere else.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TypeVarTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]

RENDERERS = {"ident", "path", "columns", "column_list"}
"""What ``shared/lake/sql.py`` makes of names: always quoted identifiers."""

QUOTED = {
    "shared/lake/connection/attach.py": "ATTACH binds nothing",
    "shared/lake/connection/store_secrets.py": "CREATE SECRET binds nothing",
    "shared/lake/connection/statements.py": "ATTACH binds nothing",
    "shared/lake/direct/files.py": "COPY binds no name of a file, and this one is our own",
    "shared/lake/direct/positions.py": "read_parquet binds no schema, and a type is DuckDB's own spelling",
    "shared/lake/direct/lakes.py": "ATTACH binds nothing",
    "shared/lake/direct/store.py": "COPY binds no name of a file, and this one is our own",
    "shared/lake/connection/engine.py": "LOAD binds nothing; the path is that of our own installation",
    "shared/lake/columns/step_statements.py": "DEFAULT of a column binds nothing",
    "services/applier/apply/maintenance/compaction.py": "COMMENT binds nothing",
    "services/applier/apply/columns/terms.py": "COMMENT and DEFAULT of a column bind nothing",
    "shared/lake/columns/mapping.py": "a column's default, in a list of columns of each run of a reading",
    "services/cli/verify/expected_rows.py": "a routing value or a default, in queries that run elsewhere",
    "viaduck_demo/command.py": "ATTACH binds nothing; the paths are the demo's own",
}
"""Where ``literal`` may be used, and why nothing else would do."""

DECLARED = {
    "type": "of a column: DuckDB's own spelling, or one that duckdb_type has held against DuckLake's list",
    "declared": "the same, in a variable",
    "alias": "of an attached lake: ours",
}

UNCHANGED = {"encode", "removesuffix", "removeprefix", "rstrip", "strip", "lower", "upper", "format_map"}
"""Methods that put nothing into a text."""

NUMBERS = {"int", "float", "bool", "range"}
COUNTING = {"len", "int", "min", "max", "range", "range_of"}


Rest = TypeVarTuple("Rest")


@dataclass
class Code:
    """Every function, constant, field and call of services and shared, by name."""

    functions: dict[str, list[tuple[str, ast.FunctionDef]]] = field(default_factory=lambda: defaultdict(list))
    calls: dict[str, list[tuple[str, ast.Call, ast.FunctionDef | None]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    assigned: dict[str, list[tuple[str, ast.expr, ast.FunctionDef | None]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    fields: dict[str, list[tuple[str, ast.expr]]] = field(default_factory=lambda: defaultdict(list))
    owners: dict[int, str] = field(default_factory=dict)
    """The class of a method."""
    classes: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    constants: dict[str, list[tuple[str, ast.expr]]] = field(default_factory=lambda: defaultdict(list))
    statements: list[tuple[str, ast.Call, ast.FunctionDef | None]] = field(default_factory=list)


def callee(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def walk(node: ast.AST, inside: ast.FunctionDef | None = None) -> Iterator[tuple[ast.AST, ast.FunctionDef | None]]:
    for child in ast.iter_child_nodes(node):
        yield child, inside
        outermost = child if inside is None and isinstance(child, ast.FunctionDef) else inside
        yield from walk(child, outermost)


@cache
def code() -> Code:
    found = Code()
    for folder in ("services", "shared", "viaduck_demo"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            text = file.read_text()
            if "sqlalchemy" not in text:  # which builds its statements itself, and binds
                _collect(found, str(file.relative_to(ROOT)), ast.parse(text))
    return found


def _collect(found: Code, file: str, tree: ast.Module) -> None:  # noqa: C901 - a line for each kind of node
    for statement in tree.body:
        for name, value in _named(statement):
            found.constants[name].append((file, value))
    for node, inside in walk(tree):
        if isinstance(node, ast.FunctionDef):
            found.functions[node.name].append((file, node))
        elif isinstance(node, ast.Call):
            found.calls[callee(node)].append((file, node, inside))
            if callee(node) in ("execute", "executemany", "Question") and node.args:
                found.statements.append((file, node, inside))
        elif isinstance(node, ast.ClassDef):
            for each in node.body:
                found.owners[id(each)] = node.name
                if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                    found.classes[node.name].append(each.target.id)
                if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                    found.fields[each.target.id].append((node.name, each.annotation))
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Attribute):
                    found.assigned[target.attr].append((file, node.value, inside))


def _named(node: ast.AST) -> Iterable[tuple[str, ast.expr]]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Name):
                yield target.id, node.value
            elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                yield from (
                    (t.id, v) for t, v in zip(target.elts, node.value.elts, strict=True) if isinstance(t, ast.Name)
                )
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
        yield node.target.id, node.value


def is_number(annotation: ast.expr | None) -> bool:
    return annotation is not None and set(ast.unparse(annotation).replace(" ", "").split("|")) <= NUMBERS | {"None"}


class Reader:
    """Whether a text is made of nothing but constants, identifiers and numbers; ``why`` holds what is not."""

    def __init__(self, code: Code) -> None:
        self._code = code
        self.why: list[str] = []
        self._open: set[tuple[str, int]] = set()

    def ok(self, file: str, node: ast.expr, inside: ast.FunctionDef | None) -> bool:
        key = (file, id(node))
        if key in self._open:
            return True  # a circle adds nothing
        self._open.add(key)
        kind = getattr(self, f"_{type(node).__name__.lower()}", None)
        if kind is not None and kind(file, node, inside):
            return True
        self.why.append(f"{file}:{node.lineno}: {ast.unparse(node)[:100]}")
        return False

    def _all(self, file: str, nodes: Iterable[ast.expr], inside: ast.FunctionDef | None) -> bool:
        return all(self.ok(file, node, inside) for node in nodes)

    def _constant(self, *_: object) -> bool:
        return True

    def _joinedstr(self, file: str, node: ast.JoinedStr, inside: ast.FunctionDef | None) -> bool:
        return self._all(file, node.values, inside)

    def _formattedvalue(self, file: str, node: ast.FormattedValue, inside: ast.FunctionDef | None) -> bool:
        spec = "" if node.format_spec is None else ast.unparse(node.format_spec).strip("f'\"")
        return spec == "d" or self.ok(file, node.value, inside)  # d refuses everything but whole numbers

    def _binop(self, file: str, node: ast.BinOp, inside: ast.FunctionDef | None) -> bool:
        return self._all(file, (node.left, node.right), inside)

    def _ifexp(self, file: str, node: ast.IfExp, inside: ast.FunctionDef | None) -> bool:
        return self._all(file, (node.body, node.orelse), inside)

    def _boolop(self, file: str, node: ast.BoolOp, inside: ast.FunctionDef | None) -> bool:
        return self._all(file, node.values, inside)

    def _tuple(self, file: str, node: ast.Tuple | ast.List, inside: ast.FunctionDef | None) -> bool:
        return self._all(file, node.elts, inside)

    _list = _tuple

    def _starred(self, file: str, node: ast.Starred, inside: ast.FunctionDef | None) -> bool:
        return self.ok(file, node.value, inside)

    def _subscript(self, file: str, node: ast.Subscript, inside: ast.FunctionDef | None) -> bool:
        return self.ok(file, node.value, inside)

    def _dict(self, file: str, node: ast.Dict, inside: ast.FunctionDef | None) -> bool:
        return self._all(file, [*(key for key in node.keys if key is not None), *node.values], inside)

    def _generatorexp(self, file: str, node: ast.GeneratorExp | ast.ListComp, inside: ast.FunctionDef | None) -> bool:
        return self.ok(file, node.elt, inside)

    _listcomp = _generatorexp

    def _dictcomp(self, file: str, node: ast.DictComp, inside: ast.FunctionDef | None) -> bool:
        return self.ok(file, node.value, inside)

    def _call(self, file: str, node: ast.Call, inside: ast.FunctionDef | None) -> bool:  # noqa: C901 - as above
        name = callee(node)
        if name in RENDERERS:
            return True
        if name == "literal":
            return file in QUOTED
        if name in ("SQL", "Identifier", "Literal"):  # psycopg's own
            return True
        if name == "str":
            return self._is_number(file, node.args[0], inside)
        if isinstance(node.func, ast.Attribute) and name in ("join", "format", *UNCHANGED):
            return self.ok(file, node.func.value, inside) and self._all(file, node.args, inside)
        if name in COUNTING:
            return True
        if name == "map":
            return self.ok(file, node.args[0], inside)
        if name == "rendered":  # the one renderer of questions, whose texts are looked at where they are written
            return file in (
                "shared/lake/connection/statements.py",
                "shared/lake/direct/catalogs.py",
                "shared/lake/connection/new_catalog.py",
            )
        if name in ("items", "values", "keys") and isinstance(node.func, ast.Attribute):
            return self.ok(file, node.func.value, inside)
        if name in ("sorted", "list", "tuple", "next", "enumerate"):
            return self._all(file, node.args, inside)
        made = self._near(file, self._code.functions.get(name, []), only=self._is_own(node.func))
        return bool(made) and all(self._returns(each_file, each) for each_file, each in made)

    def _returns(self, file: str, function: ast.FunctionDef) -> bool:
        if is_number(function.returns):
            return True
        returned = [node.value for node, owner in walk(function, function) if isinstance(node, ast.Return | ast.Yield)
                    and owner is function and node.value is not None]  # fmt: skip
        return self._all(file, returned, function)

    def _name(self, file: str, node: ast.Name, inside: ast.FunctionDef | None) -> bool:
        if node.id in RENDERERS or node.id in DECLARED or (node.id == "literal" and file in QUOTED):
            return True
        values = [] if inside is None else list(self._local(node.id, inside))
        if values:
            return self._all(file, values, inside)
        if inside is not None and self._parameter(node.id, inside) is not None:
            return self._given(node.id, inside)
        made = self._near(file, self._code.functions.get(node.id, []))
        if made:
            return all(self._returns(each_file, each) for each_file, each in made)
        found = self._near(file, self._code.constants.get(node.id, []))
        return bool(found) and all(self.ok(each_file, value, None) for each_file, value in found)

    def _local(self, name: str, inside: ast.FunctionDef) -> Iterator[ast.expr]:
        """What a variable of the function is made of; for the variable of a loop, what is looped over."""
        for node in ast.walk(inside):
            if isinstance(node, ast.Assign | ast.AnnAssign):
                yield from (value for target, value in _named(node) if target == name)
                if isinstance(node, ast.Assign) and not isinstance(node.value, ast.Tuple):
                    yield from (node.value for target in node.targets if isinstance(target, ast.Tuple | ast.List)
                                and name in _names(target))  # fmt: skip
            elif isinstance(node, ast.For | ast.comprehension) and name in _names(node.target):
                yield _looped(name, node.target, node.iter)
            elif (
                isinstance(node, ast.withitem) and node.optional_vars is not None and name in _names(node.optional_vars)
            ):
                yield node.context_expr
            elif isinstance(node, ast.AugAssign | ast.NamedExpr) and name in _names(node.target):
                yield node.value

    def _parameter(self, name: str, inside: ast.FunctionDef) -> ast.arg | None:
        given = inside.args
        return next((arg for arg in (*given.posonlyargs, *given.args, *given.kwonlyargs) if arg.arg == name), None)

    def _given(self, name: str, inside: ast.FunctionDef) -> bool:
        """Whether every caller gives a parameter what may be in a text."""
        parameter = self._parameter(name, inside)
        assert parameter is not None
        if is_number(parameter.annotation):
            return True
        private = inside.name.startswith("_") and inside.name != "__init__"
        names = [arg.arg for arg in (*inside.args.posonlyargs, *inside.args.args) if arg.arg not in ("self", "cls")]
        called = self._code.owners.get(id(inside), "") if inside.name == "__init__" else inside.name
        calls = self._near(self._home(inside), self._code.calls.get(called, []), only=private)
        given = [(file, value, caller) for file, call, caller in calls for value in _argument(call, name, names)]
        defaults = zip(reversed(names), reversed(inside.args.defaults), strict=False)
        given += [(self._home(inside), value, None) for each, value in defaults if each == name]
        return bool(given) and all(self.ok(*each) for each in given)

    def _home(self, function: ast.FunctionDef) -> str:
        return next(file for file, each in self._code.functions[function.name] if each is function)

    def _is_own(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"

    def _near(self, file: str, found: Sequence[tuple[str, *Rest]], *, only: bool = False) -> list[tuple[str, *Rest]]:
        """Those of the same file, if there are any; else, unless ``only`` they count, all of that name."""
        here = [each for each in found if each[0] == file]
        return here if here or only else list(found)

    def _attribute(self, file: str, node: ast.Attribute, inside: ast.FunctionDef | None) -> bool:
        name = node.attr
        if name in DECLARED or self._is_number(file, node, inside):
            return True
        own, known = self._is_own(node), self._class_of(node.value, inside)
        owners = [owner for owner, _ in self._code.fields.get(name, [])]
        here = known if known in owners else self._code.owners.get(id(inside), "")
        made = self._near(file, self._code.functions.get(name, []), only=own)
        if made and here not in owners:  # a property
            return all(self._returns(each_file, each) for each_file, each in made)
        assigned = self._near(file, self._code.assigned.get(name, []), only=own)
        owners = [owner for owner in owners if owner == here] if own or known in owners else owners
        given = [*assigned, *(each for owner in owners for each in self._constructed(owner, name))]
        return bool(given) and all(self.ok(*each) for each in given)

    def _constructed(self, owner: str, name: str) -> Iterator[tuple[str, ast.expr, ast.FunctionDef | None]]:
        """What the field of a class is given, where one is made and where one is changed."""
        for file, call, caller in self._code.calls.get(owner, []):
            yield from ((file, value, caller) for value in _argument(call, name, self._code.classes[owner]))
        for file, call, caller in self._code.calls.get("replace", []):
            yield from ((file, word.value, caller) for word in call.keywords if word.arg == name)

    def _class_of(self, node: ast.expr, inside: ast.FunctionDef | None) -> str:
        """The class that a parameter is declared to be of."""
        parameter = self._parameter(node.id, inside) if isinstance(node, ast.Name) and inside is not None else None
        return "" if parameter is None or parameter.annotation is None else ast.unparse(parameter.annotation)

    def _is_number(self, file: str, node: ast.expr, inside: ast.FunctionDef | None) -> bool:
        if isinstance(node, ast.Name) and inside is not None:
            parameter = self._parameter(node.id, inside)
            return parameter is not None and is_number(parameter.annotation)
        if isinstance(node, ast.Attribute):
            found = self._code.fields.get(node.attr, [])
            return bool(found) and all(is_number(annotation) for _, annotation in found)
        return isinstance(node, ast.Call) and callee(node) in COUNTING


def _looped(name: str, target: ast.expr, over: ast.expr) -> ast.expr:
    """What a loop's variable is one of; a number where the loop counts."""
    if isinstance(over, ast.Call) and callee(over) == "enumerate":
        first = isinstance(target, ast.Tuple) and name in _names(target.elts[0])
        return ast.Constant(0) if first else over.args[0]
    return over


def _names(target: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}


def _argument(call: ast.Call, name: str, names: list[str]) -> Iterator[ast.expr]:
    yield from (keyword.value for keyword in call.keywords if keyword.arg == name)
    place = names.index(name) if name in names else len(call.args)
    if place < len(call.args):
        yield call.args[place]


def mistakes_in(code: Code) -> list[str]:
    mistakes = []
    for file, call, inside in code.statements:
        reader = Reader(code)
        if not reader.ok(file, call.args[0], inside):
            why = "\n    ".join(reader.why[-4:])
            mistakes.append(f"{file}:{call.lineno} executes what is not all constant:\n    {why}")
    return mistakes


def test_no_value_is_formatted_into_a_statement() -> None:
    mistakes = mistakes_in(code())
    assert not mistakes, "\n" + "\n".join(mistakes)
    assert len(code().statements) > 60, "it looks at nothing"


def test_what_is_quoted_instead_of_bound_is_on_the_list_and_the_list_is_no_longer_than_that() -> None:
    quoting = {file for file, call, _ in code().calls["literal"]} | {
        file for file, call, _ in code().calls["map"] if ast.unparse(call.args[0]) == "literal"
    }
    assert quoting == set(QUOTED)


GOOD = [
    "def f(con, value): con.execute('SELECT ?', [value])",
    "def f(con, name): con.execute(f'SELECT * FROM {ident(name)}')",
    "def f(con, at: int): con.execute(f'SELECT {at}')",
    "def f(con, at): con.execute(f'SELECT {at:d}')",
    "T = 'x'\ndef g(of): return f'SELECT {of}'\ndef f(con): con.execute(g(T))",
]

BAD = [
    "def f(con, value): con.execute(f'SELECT {value}')\ndef g(con, row): f(con, row['name'])",
    "def f(con, value): con.execute('SELECT ' + str(value))",
    "def f(con, value): con.execute('SELECT {}'.format(value.name))",
    "def f(con, rows):\n    text = ', '.join(row.name for row in rows.fetchall())\n    con.execute(f'SELECT {text}')",
    "def g(row): return f'SELECT {row.name}'\ndef f(con, row): con.execute(g(row))",
    "def f(con, value): con.execute(f'SELECT {literal(value)}')",
    "class C:\n    def __init__(self, row): self._t = row.name\n    def f(self, con): con.execute(self._t)",
    "def f(lake, row): Question(f'SELECT * FROM {row.name}')",
    "import os\ndef f(con): con.execute(os.environ['X'])",
]


@pytest.mark.parametrize("text", [*GOOD, *BAD])
def test_it_tells_a_text_that_is_all_constant_from_one_that_is_not(text: str) -> None:
    found = Code()
    _collect(found, "services/somewhere.py", ast.parse(text))
    assert bool(mistakes_in(found)) == (text in BAD)
