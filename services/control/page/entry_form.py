"""The form for a destination's entry: fields, values, and errors beside the fields that they are about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from services.control.model.problems import KINDS, uri
from services.control.operations.destination_entry import Entry
from services.control.web.problems import LONGEST, FieldProblem, HttpProblem, said
from shared.config.catalogs import CatalogRefused, has_password, parse_catalog
from shared.config.secrets import scrub

FIRST = ("id", "routing_value", "catalog_env", "catalog", "data_path", "seed_mode")
MORE = ("name", "postgres_uri_env", "metadata_schema", "schema", "table", "properties", "layout", "evolution")
LINES = ("properties", "layout", "evolution")
"""What most destinations do without."""
FIELDS = (*FIRST, *MORE)

SEED_MODES = {
    "": "as the pipeline does",
    "scan": "scan: all present rows",
    "replay": "replay: from the oldest snapshot",
    "latest": "latest: only changes from now on",
}
ID_RULE = "1 to 200 letters, digits and . _ : @ + - with a letter or digit first"
HERE = Path("/")


@dataclass(frozen=True)
class Filled:
    """The form with the user's values and the errors of each field."""

    values: Mapping[str, str] = field(default_factory=dict)
    problem: HttpProblem | None = None
    version: int | None = None
    """Of the destination that is being changed, as it was when the form was shown; None for a new one."""

    @property
    def faults(self) -> dict[str, str]:
        """What is wrong with a field of the form, by its name."""
        found = [] if self.problem is None else self.problem.fields
        named = {_field_of(each.path): each.message for each in reversed(found)}
        return {name: text for name, text in named.items() if name in FIELDS}

    @property
    def elsewhere(self) -> list[FieldProblem]:
        """What is wrong with what has no field of its own."""
        found = [] if self.problem is None else self.problem.fields
        return [each for each in found if _field_of(each.path) not in FIELDS]

    @property
    def status(self) -> int:
        return 200 if self.problem is None else KINDS[self.problem.kind].status

    def shown(self) -> dict[str, Any]:
        """For the templates."""
        problem = self.problem
        told = None if problem is None else {
            "kind": problem.kind, "title": KINDS[problem.kind].title, "page": uri(problem.kind),
            "detail": problem.detail[:LONGEST], "hint": problem.hint or KINDS[problem.kind].hint,
        }  # fmt: skip
        values, faults = _echoed(self.values), self.faults
        return {"values": values, "problem": told, "faults": faults, "elsewhere": self.elsewhere,
                "first": next((name for name in FIELDS if name in faults), None),
                "withheld": [name for name in FIELDS if self.values.get(name) and not values[name]],
                "more": any(values[name] or name in faults for name in MORE),
                "seed_modes": SEED_MODES, "id_rule": ID_RULE, "version": self.version}  # fmt: skip


def filled_with(entry: Mapping[str, Any], version: int) -> Filled:
    """The form for a change of what was put."""
    values = {name: _text(entry[name]) for name in FIELDS if name in entry and name not in LINES}
    lines = {name: _lines_of(entry.get(name) or {}) for name in LINES}
    return Filled({**values, **lines}, version=version)


def written_in(fields: Mapping[str, str]) -> dict[str, str]:
    """The values of the form; empty fields are left out."""
    return {name: text for name, text in fields.items() if name in FIELDS and text.strip()}


def entry_of(given: Mapping[str, str]) -> Entry:
    """Raises ``ValidationError``, and ``HttpProblem`` for lines that are no settings."""
    plain: dict[str, Any] = {name: text for name, text in given.items() if name not in LINES}
    plain |= {name: _settings(name, given[name]) for name in LINES if name in given}
    return Entry.model_validate({"id": "", "routing_value": "", **plain})


def invalid(error: ValidationError) -> HttpProblem:
    fields = [
        FieldProblem(
            path=".".join(map(str, each["loc"])),
            message=f"must be {ID_RULE}" if each["loc"][0] == "id" else each["msg"],
        )
        for each in error.errors(include_url=False, include_input=False)
    ]
    return HttpProblem("invalid", said(fields), fields=fields)


def _lines_of(settings: Mapping[str, Any]) -> str:
    return "\n".join(f"{name} = {_text(value)}" for name, value in settings.items() if value is not None)


def _settings(field: str, text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, sign, value = line.partition("=")
        if not line.strip():
            continue
        if not sign or not name.strip() or name.strip() in found:
            why = "has a name that has its own field above" if sign and name.strip() else "is not name = value"
            fields = [FieldProblem(path=field, message=f"line {number} {why}")]
            raise HttpProblem("invalid", said(fields), fields=fields)
        found[name.strip()] = value.strip()
    return found


def _field_of(path: str) -> str:
    return next((name for name in LINES if path.startswith(f"{name}.")), path)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _echoed(given: Mapping[str, str]) -> dict[str, str]:
    """What goes back into the form, whatever else was wrong with it: nothing that may hold a password."""
    return {name: "" if _may_be_secret(name, given.get(name, "")) else given.get(name, "") for name in FIELDS}


def _may_be_secret(name: str, text: str) -> bool:
    if scrub(text) != text:
        return True
    if name != "catalog" or not text or text.startswith("sqlite:"):
        return False
    try:
        return has_password(parse_catalog(text, HERE))
    except CatalogRefused:  # the content is unknown
        return True
