"""The shape of the code that other promises rest on, read off its imports."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.contracts import errors
from tests.layers import LAYERS, PAGE, ROOT, arrows, imports, nodes, order, picture, sources

EDGES = {
    "pyspark",
    "py4j",
    "confluent_kafka",
    "duckdb",
    "pyarrow",
    "sqlalchemy",
    "psycopg",
    "fastapi",
    "time",
    "socket",
}
PURE = (
    "shared/contracts/messages.py",
    "shared/contracts/reports.py",
    "shared/contracts/ranges.py",
    "shared/contracts/errors.py",
    "shared/contracts/digest.py",
    "shared/contracts/latest.py",
    "services/applier/apply/cursor/decide.py",
    "services/applier/model/grouping.py",
    "services/applier/model/admission.py",
    "services/applier/model/immediate_answers.py",
    "services/applier/model/offsets.py",
    "services/applier/model/task.py",
    "services/reader/planner/plan.py",
    "services/reader/planner/exactness.py",
    "services/reader/planner/scheduling.py",
    "services/reader/planner/change_index.py",
    "services/reader/planner/counted_changes.py",
    "shared/runtime/backoff.py",
    "services/control/model/lifecycle.py",
    "services/control/model/answers.py",
    "services/control/view/destination_status.py",
    "services/control/model/conflicts.py",
    "services/control/model/audit.py",
    "services/control/model/problems.py",
    "services/control/model/recovery.py",
    "shared/config/safe_names.py",
    "services/control/model/policy.py",
    "services/reader/source/unrouted_values.py",
)


OF_COMMANDS = {
    "services.applier.worker.topic_routes",
    "services.applier.worker.topic_sample",
    "services.control.operations.token_command",
}
"""What the command line, which starts the services, uses of them: how records become rows, and tokens."""

OF_A_SERVICE = re.compile(r"services\.(\w+)[\w.]*")


@pytest.mark.slow
def test_a_service_imports_no_other_service() -> None:
    beyond = {}
    for file in sources("services"):
        service = file.relative_to(ROOT).parts[1]
        others = {name for name in imports(file) if name.startswith("services.") and name.split(".")[1] != service}
        if others:
            beyond[str(file.relative_to(ROOT))] = others
    assert all(file.startswith("services/cli/") for file in beyond), beyond
    assert set().union(*beyond.values()) == OF_COMMANDS


@pytest.mark.slow
def test_no_service_names_a_module_of_another_in_a_text() -> None:
    """As it would to import it unseen. What the command line starts has no name in full there."""
    for file in sources("services"):
        service = file.relative_to(ROOT).parts[1]
        texts = [node.value for node in nodes(file) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        named = [found for text in texts if (found := OF_A_SERVICE.fullmatch(text)) and found[1] != service]
        assert not named, f"{file}: {named}"


@pytest.mark.parametrize("folder", sorted(LAYERS))
def test_a_package_imports_only_lower_layers(folder: str) -> None:
    lowest_first = order(folder)
    for user, used in sorted(arrows(folder)):
        assert lowest_first.index(used) < lowest_first.index(user), f"{folder}: {user} imports {used}"


@pytest.mark.parametrize("folder", sorted(LAYERS))
def test_the_page_shows_each_service_as_it_is(folder: str) -> None:
    page = PAGE.read_text()
    assert f"<!-- layers: {folder} -->\n{picture(folder)}\n<!-- end -->" in page, "run python -m tests.layers"


def test_what_is_shared_imports_no_service() -> None:
    for file in sources("shared"):
        assert not [name for name in imports(file) if name.startswith("services")], file


def test_the_product_imports_no_demo() -> None:
    for file in sources("services", "shared"):
        assert not [name for name in imports(file) if name.startswith("viaduck_demo")], file


@pytest.mark.parametrize("path", PURE)
def test_the_pure_core_reaches_no_edge(path: str) -> None:
    assert (ROOT / path).exists()
    direct = {name.split(".")[0] for name in imports(ROOT / path)}
    assert not direct & EDGES


def test_no_lake_is_opened_by_another_sqlite_library() -> None:
    """H11: two SQLite libraries in one process break each other's locks."""
    for file in sources("services", "shared", "viaduck_demo", "bench", "tests/world"):
        assert "sqlite3" not in {name.split(".")[0] for name in imports(file)}, file


def test_every_duckdb_instance_of_ours_comes_from_one_place() -> None:
    """H1 and the pinned extensions are dealt with there."""
    for file in sources("services", "shared", "viaduck_demo"):
        if file != ROOT / "shared/lake/connection/engine.py":
            assert "duckdb.connect(" not in file.read_text(), file


def test_only_one_function_turns_a_range_into_inclusive_bounds() -> None:
    for file in sources("services", "shared"):
        if file != ROOT / "shared/contracts/ranges.py":
            assert "after + 1" not in file.read_text(), file


RESOLVERS = {"shared/config/declared.py", "shared/config/deployment.py", "services/control/model/declared.py",
             "services/control/operations/discovery.py"}  # fmt: skip
"""Who asks for a lake's kind or identity alone, and who says what a lake may name."""


def test_no_lake_is_opened_before_it_was_asked_whose_it_is() -> None:
    for file in sources("services", "shared"):
        for node in nodes(file):
            if isinstance(node, ast.ImportFrom) and node.module == "shared.config.catalogs":
                taken = {alias.name for alias in node.names}
                assert "resolve" not in taken or str(file.relative_to(ROOT)) in RESOLVERS, file


THREADS = {
    "threading": {"Thread", "Timer"},
    "_thread": {"start_new_thread"},
    "concurrent.futures": {"ThreadPoolExecutor", "ProcessPoolExecutor"},
    "multiprocessing": {"Process", "Pool"},
    "multiprocessing.pool": {"Pool", "ThreadPool"},
    "socketserver": {"ThreadingMixIn", "ThreadingTCPServer"},
    "http.server": {"ThreadingHTTPServer"},
    "asyncio": {"to_thread"},
}
"""What starts a thread, by module."""

STARTS_THREADS = {
    ("shared/runtime/background.py", "threading.Thread"): "the one place: every other long-lived thread is one of its",
    ("services/applier/early_answers.py", "threading.Thread"): "ends with its job, where what it raised is raised",
    ("shared/runtime/peers.py", "concurrent.futures.ThreadPoolExecutor"): "requests of one call, each with a timeout",
    ("services/control/readiness.py", "concurrent.futures.ThreadPoolExecutor"): "checks of one call, waited for "
    "with a bound; a check that hangs is named in /readyz and not asked again meanwhile",
    (
        "services/applier/worker/worker_state.py",
        "concurrent.futures.ThreadPoolExecutor",
    ): "applies of a Spark task, whose end is "
    "waited for with a deadline; one that hangs is left behind, counted, and ends its worker",
    (
        "services/applier/worker/portions.py",
        "concurrent.futures.ThreadPoolExecutor",
    ): "ends with the reading of a range, where what it raised is raised",
    ("services/cli/commands/check.py", "concurrent.futures.ThreadPoolExecutor"): "ends with the command",
    ("services/cli/verify/command.py", "concurrent.futures.ThreadPoolExecutor"): "ends with the command",
}
"""Who may start threads, and why nobody has to watch them."""


def thread_starts(file: Path) -> Iterator[str]:
    """Every name in a module by which it can start a thread, in full."""
    for node in nodes(file):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{a.name}" for a in node.names if a.name in THREADS.get(node.module or "", ()))
        elif isinstance(node, ast.Attribute) and node.attr in THREADS.get(ast.unparse(node.value), ()):
            yield ast.unparse(node)
        elif isinstance(node, ast.Attribute) and node.attr == "run_in_executor":
            yield node.attr


def test_no_thread_begins_but_in_the_one_place_that_watches_it() -> None:
    found = {
        (str(file.relative_to(ROOT)), name) for file in sources("services", "shared") for name in thread_starts(file)
    }
    assert found == STARTS_THREADS.keys()


@pytest.mark.parametrize(
    "text",
    [
        "import threading\nclass Lane(threading.Thread): ...",
        "from threading import Timer as T\nT(1, print).start()",
        "import concurrent.futures\nconcurrent.futures.ThreadPoolExecutor()",
        "loop.run_in_executor(None, print)",
    ],
)
def test_a_thread_that_is_started_elsewhere_is_seen(text: str, tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(text)
    assert list(thread_starts(module))


def test_every_transaction_in_a_destination_begins_with_its_schema_loaded() -> None:
    """The feed's is one of the source, where nothing is made (H21)."""
    begins = {
        file.name
        for file in sources("services/applier")
        if '"BEGIN"' in file.read_text() or "'BEGIN'" in file.read_text()
    }
    assert begins == {"feed.py"}


FRAMEWORKS = {
    "downgrade",
    "process_bind_param",
    "process_result_value",
    "main_loop",
}
"""What Alembic, SQLAlchemy and uvicorn call."""


def used(file: Path) -> Iterator[str]:
    """Every name that a module reads, imports or passes."""
    for node in nodes(file):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.name.rpartition(".")[2]


FOR_TESTS_AND_PROGRAMS = {
    "grants": "docs/how-to/connect-to-kafka.md offers it to programs",
    "source_grants": "as grants",
    "rejected_grants": "as grants",
}
"""What no part of the product calls, and why it is there."""


@pytest.mark.slow
def test_every_class_and_function_is_used() -> None:
    """By the product itself: what only a test calls is no part of it. A framework calls functions with a decorator."""
    known = {name for file in sources("services", "shared", "viaduck_demo", "bench") for name in used(file)}
    for template in (ROOT / "services/control/page").rglob("*.html"):
        known.update(re.findall(r"\w+", template.read_text()))
    defined = [
        (str(file.relative_to(ROOT)), node.name)
        for file in sources("services", "shared", "viaduck_demo")
        for node in nodes(file)
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and (isinstance(node, ast.ClassDef) or all(ast.unparse(each) == "property" for each in node.decorator_list))
        and not node.name.startswith("__")
    ]
    assert defined
    assert not [each for each in defined if each[1] not in known | FRAMEWORKS | FOR_TESTS_AND_PROGRAMS.keys()]


def exceptions() -> dict[str, tuple[str, str]]:
    """Every class of the product that is an exception, under its module's name: its base, and whether it is our root.

    Of a class that is defined elsewhere only the name is known, so a base counts as one of ours where we define it.
    """
    classes = {
        (str(file.relative_to(ROOT)), node.name): [ast.unparse(base).rpartition(".")[2] for base in node.bases]
        for file in sources("services", "shared", "viaduck_demo")
        for node in nodes(file)
        if isinstance(node, ast.ClassDef)
    }
    builtin = {
        name for name, each in vars(builtins).items() if isinstance(each, type) and issubclass(each, BaseException)
    }
    found: dict[str, tuple[str, str]] = {}
    names: set[str] = set(builtin)
    while True:
        new = {
            name: (file, next(base for base in bases if base in names))
            for (file, name), bases in classes.items()
            if name not in found and names.intersection(bases)
        }
        if not new:
            return found
        found |= new
        names |= new.keys()


def drawn_errors() -> dict[str, tuple[str, str]]:
    """The tree in the docstring of ``errors``: each class with its module, and the one above it."""
    lines = re.findall(
        r"^    ([ │]*)(?:[├└]── )?([A-Z]\w+) .*?(?:\(([a-z0-9_.]+)\))?$", errors.__doc__ or "", re.MULTILINE
    )
    above: list[str] = []
    drawn: dict[str, tuple[str, str]] = {}
    for indent, name, module in lines:
        depth = 0 if not drawn else len(indent) // 4 + 1
        above[depth:] = [name]
        drawn[name] = (module, above[depth - 1] if depth else "Exception")
    return drawn


def test_the_tree_of_errors_is_the_one_that_its_docstring_draws() -> None:
    there, drawn = exceptions(), drawn_errors()
    assert there["Error"] == ("shared/contracts/errors.py", "Exception")
    assert {name: base for name, (_, base) in there.items()} == {name: base for name, (_, base) in drawn.items()}
    for name, (file, _) in there.items():
        module = file.removesuffix(".py").replace("/", ".")
        assert module.endswith(drawn[name][0] or "contracts.errors"), name


def test_every_error_is_raised_somewhere() -> None:
    """Or handed to a callback, as where a message is not delivered."""
    made = {
        ast.unparse(node.func if isinstance(node, ast.Call) else node.exc or node).rpartition(".")[2]
        for file in sources("services", "shared", "viaduck_demo")
        for node in nodes(file)
        if isinstance(node, ast.Call | ast.Raise)
    }
    above = {base for _, base in exceptions().values()}
    assert not exceptions().keys() - above - made


MOST_PARAMETERS = 7


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    given = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    return len([each for each in given if each.arg not in ("self", "cls")])


@pytest.mark.slow
def test_nothing_takes_more_than_seven_parameters() -> None:
    """What takes more is given a context. Of routes and commands the parameters are what users may ask for."""
    taking = [
        f"{file.relative_to(ROOT)}: {node.name}: {parameters(node)}"
        for file in sources("services", "shared", "viaduck_demo", "client")
        for node in nodes(file)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and parameters(node) > MOST_PARAMETERS
        and not any(isinstance(each, ast.Call) for each in node.decorator_list)
    ]
    assert taking == []
