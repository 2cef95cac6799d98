"""Reference pages that are made from the code: metrics, messages, log events, the command line and REST calls.

``python -m tests.reference`` makes the parts between marks of docs/reference anew. Meanings of messages' fields and of
log events are written by hand in the pages and kept; ``tests/fast/test_reference.py`` fails where one is missing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeGuard

import typer.main
from pydantic import BaseModel

from services.cli.main import app
from services.control.app import build
from services.control.web.caller import GuardedRequest
from services.control.web.context import Sources
from services.control.web.guard import OPEN, Guard
from shared.contracts import errors, layout, messages, reports, routed_by, upkeep
from shared.runtime.lake_metrics import LakeMetrics
from shared.runtime.metrics import Metrics
from shared.runtime.retention_metrics import RetentionMetrics

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs/reference"
BEGIN, END = "<!-- made by python -m tests.reference -->\n", "<!-- end of what was made -->"
ROW = re.compile(r"^\| `([^`]+)` \|.* \| ([^|]*) \|$")
LEVELS = ("debug", "info", "warning", "error", "exception", "critical")
LOGS = re.compile(rf"\blog\.({'|'.join(LEVELS)})\(")

Meanings = dict[tuple[str, str], str]
"""What is written by hand, by the section and the first cell of its row."""


def meanings(page: str) -> Meanings:
    found, section = {}, ""
    for line in page.splitlines():
        if line.startswith("#"):
            section = line.lstrip("# `").rstrip("`")
        elif row := ROW.match(line):
            found[section, row[1]] = row[2].strip()
    return found


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return (
        "".join("| " + " | ".join(cells) + " |\n" for cells in lines)
        .replace("| --- ", "|---")
        .replace("---|\n", "---|\n")
    )


# -- metrics -----------------------------------------------------------------------------------------------------------


def metrics(_: Meanings) -> str:
    registries = Metrics("p").registry, LakeMetrics("p").registry, RetentionMetrics("p").registry
    collectors = [each for registry in registries for each in registry._names_to_collectors.values()]
    rows = []
    for collector in {id(each): each for each in collectors}.values():
        described = next(iter(collector.describe()))  # type: ignore[attr-defined]
        suffix = "_total" if described.type == "counter" else ""
        labels = ", ".join(f"`{name}`" for name in collector._labelnames)  # type: ignore[attr-defined]
        rows.append((f"`{described.name}{suffix}`", described.type, labels, described.documentation))
    return table(("metric", "type", "labels", "meaning"), sorted(rows))


# -- messages ----------------------------------------------------------------------------------------------------------


def models() -> list[type[BaseModel]]:
    """The messages and the values within them, in the order of the modules."""
    modules = (messages, errors, reports, layout, upkeep, routed_by)
    there = [(module.__name__, each) for module in modules for each in vars(module).values()]
    models = [(name, each) for name, each in there if isinstance(each, type) and issubclass(each, BaseModel)]
    return [each for name, each in models if each.__module__ == name and each is not messages.Message]


def topics(known: Meanings) -> str:
    return "\n".join(_model(each, known) for each in models())


def _model(model: type[BaseModel], known: Meanings) -> str:
    schema = model.model_json_schema()
    rows = []
    for name, field in schema["properties"].items():
        if name != "v":
            default = "required" if name in schema.get("required", ()) else _default(field)
            rows.append((f"`{name}`", _type(field, schema), default, known.get((model.__name__, name), "")))
    return f"### {model.__name__}\n\n{table(('field', 'type', 'default', 'meaning'), rows)}"


def _default(field: dict[str, Any]) -> str:
    value = field.get("default")
    return (
        ""
        if value is None or isinstance(value, dict | list)
        else f"`{str(value).lower() if value is True or value is False else value}`"
    )


def _type(field: dict[str, Any], schema: dict[str, Any]) -> str:
    if "anyOf" in field:
        return " or ".join(_type(each, schema) for each in field["anyOf"])
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        values = schema["$defs"][name].get("enum")
        return ", ".join(f"`{value}`" for value in values) if values else f"[{name}](#{name.lower()})"
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if field["type"] == "array":
        return f"array of {_type(field['items'], schema)}" if "items" in field else "array"
    if isinstance(inner := field.get("additionalProperties"), dict):
        return f"object of {_type(inner, schema)}"
    return str({"string": field.get("format", "text").replace("date-time", "time")}.get(field["type"], field["type"]))


# -- log events --------------------------------------------------------------------------------------------------------


@cache
def log_calls() -> tuple[tuple[Path, ast.Call], ...]:
    """Only files that log are parsed, once: that takes all the time."""
    files = sorted(file for folder in ("services", "shared") for file in (ROOT / folder).rglob("*.py"))
    texts = {file: text for file in files if LOGS.search(text := file.read_text())}
    return tuple((file, node) for file, text in texts.items() for node in ast.walk(ast.parse(text)) if _logs(node))


def _logs(node: ast.AST) -> TypeGuard[ast.Call]:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    return isinstance(node.func.value, ast.Name) and node.func.value.id == "log" and node.func.attr in LEVELS


def log_events(known: Meanings) -> str:
    found: dict[str, tuple[set[str], set[str], set[str]]] = {}
    for file, call in log_calls():
        levels, fields, services = found.setdefault(ast.literal_eval(call.args[0]), (set(), set(), set()))
        levels.add(ast.unparse(call.func).removeprefix("log.").replace("exception", "error"))
        fields |= {keyword.arg or "…" for keyword in call.keywords}
        parts = file.relative_to(ROOT).parts
        services.add(parts[1] if parts[0] == "services" else "all")
    rows = []
    for event, (levels, fields, services) in sorted(found.items()):
        shown = ", ".join(f"`{name}`" if name != "…" else name for name in sorted(fields))
        where = ", ".join(sorted(services))
        rows.append((f"`{event}`", ", ".join(sorted(levels)), where, shown, known.get(("Events", event), "")))
    return table(("event", "level", "logged by", "fields", "meaning"), rows)


# -- command line ------------------------------------------------------------------------------------------------------


def commands() -> dict[str, Any]:
    """Every command by its words, ``viaduck destination add`` among them, in the order of the help."""
    found: dict[str, Any] = {}

    def walk(command: Any, words: str) -> None:
        found[words] = command
        for name, inner in getattr(command, "commands", {}).items():
            walk(inner, f"{words} {name}")

    walk(typer.main.get_command(app), "viaduck")
    return found


def cli(_: Meanings) -> str:
    return "\n".join(_command(words, command) for words, command in commands().items())


def _command(words: str, command: Any) -> str:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    used = " ".join([words, *(each.metavar or each.name or "" for each in arguments)])
    rows = [_parameter(each) for each in command.params]
    text = (command.help or "").strip().splitlines()[0]
    shown = f"\n{table(('option', 'default', 'meaning'), rows)}" if rows else ""
    return f"## {words}\n\n`{used}`: {text}\n{shown}"


def _parameter(parameter: Any) -> tuple[str, str, str]:
    help_text = getattr(parameter, "help", None) or ""
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar or parameter.name}`", "required" if parameter.required else "", help_text
    value = f" {parameter.metavar}" if parameter.metavar else ""
    names = ", ".join(f"`{name}{value if name == parameter.opts[-1] else ''}`" for name in parameter.opts)
    others = "".join(f", `{name}`" for name in parameter.secondary_opts)
    default = (
        "required"
        if parameter.required
        else ""
        if parameter.default in (None, False)
        else f"`{_said(parameter.default)}`"
    )
    return f"{names}{others}", default, help_text


def _said(default: object) -> str:
    return (
        str(getattr(default, "value", default)).lower()
        if isinstance(default, bool)
        else str(getattr(default, "value", default))
    )


# -- REST --------------------------------------------------------------------------------------------------------------


@cache
def calls() -> dict[tuple[str, str], dict[str, Any]]:
    """What OpenAPI says of each call, by its path and method."""
    paths: dict[str, dict[str, Any]] = build(Sources(dict, dict, str), Guard(loopback=True)).openapi()["paths"]
    return {(path, method.upper()): call for path, methods in paths.items() for method, call in methods.items()}


def rest(_: Meanings) -> str:
    found = calls()
    usual = set.intersection(*({*call["responses"]} for (path, _), call in found.items() if path.startswith("/v1/")))
    rows = [_call(path, method, call, usual) for (path, method), call in sorted(found.items())]
    said = f"Each call below `/v1` may also answer {', '.join(sorted(usual - {'200'}))} ([errors](errors.md)).\n\n"
    return said + table(("call", "scope", "what it does", "parameters", "answers"), rows)


def _call(path: str, method: str, call: dict[str, Any], usual: set[str]) -> tuple[str, ...]:
    scope = "" if path in OPEN else f"`{GuardedRequest(method, re.sub(r'[{}]', '', path)).needs}`"
    text = " ".join(call["description"].split()).replace("|", r"\|")
    parameters = ", ".join(f"`{each['name']}`" for each in call.get("parameters", ()) if each["in"] != "path")
    own = set(call["responses"]) - (usual if path.startswith("/v1/") else set())
    return f"`{method} {path}`", scope, text, parameters, ", ".join(sorted(own))


PAGES: dict[str, Callable[[Meanings], str]] = {
    "metrics.md": metrics,
    "topics.md": topics,
    "log-events.md": log_events,
    "cli.md": cli,
    "rest-api.md": rest,
}


def made(name: str, page: str) -> str:
    """The page with its part between the marks made anew."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + PAGES[name](meanings(page)) + END + after


if __name__ == "__main__":
    for name in PAGES:
        (FOLDER / name).write_text(made(name, (FOLDER / name).read_text()))
