"""What a GET answered, sent back by a PUT: its read-only fields are left out, unless they ask for something else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import PrivateAttr, ValidatorFunctionWrapHandler, model_validator

from services.control.api.models import Detail, PipelineDetail
from services.control.model.lifecycle import Refused
from services.control.operations.destination_entry import Entry
from services.control.view.destination_status import OFF
from services.control.web.problems import FieldProblem, Problem, said

ENTRY_KEYS = frozenset(field.alias or name for name, field in Entry.model_fields.items())
READ_ONLY = frozenset(field.serialization_alias or name for name, field in Detail.model_fields.items()) - ENTRY_KEYS
FIXED = {
    "pipeline": "the path names the pipeline",
    "generation": "POST …:reseed or …:rewind begins a new life",
    "managed_by": "the file's destinations are changed in the file",
    "rewound_to": "POST …:rewind begins a new life at a snapshot",
    "lake": "change catalog, data_path, metadata_schema or properties beside it",
}
"""Read-only fields that somebody might want to change this way, and how it is done. The others change by themselves."""


class PutEntry(Entry):
    """The keys of a `destinations` entry of the configuration file (docs/reference/configuration.md).

    What a GET of the destination answers may be sent back: fields that are read-only there change nothing, and are
    refused where they differ from what is.
    """

    _shown: dict[str, Any] = PrivateAttr(default_factory=dict)

    @model_validator(mode="wrap")
    @classmethod
    def _apart(cls, given: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        if not isinstance(given, dict):
            return handler(given)
        made = handler({name: value for name, value in given.items() if name not in READ_ONLY})
        made._shown = {name: value for name, value in given.items() if name in READ_ONLY}
        return made

    @property
    def shown(self) -> Mapping[str, Any]:
        """The read-only fields that came with it."""
        return self._shown


def require_unchanged(shown: Mapping[str, Any], pipeline: str, present: Detail | None, *, conditional: bool) -> None:
    """Raises ``Problem`` where a read-only field asks for something, ``Refused`` where it is of another version.

    ``present`` is None where there is no such destination yet. ``conditional``: an If-Match says what was seen.
    """
    now = {"pipeline": pipeline} if present is None else present.model_dump(mode="json", by_alias=True)
    fields = [
        FieldProblem(path=name, message=f"is read-only, and {now[name]!r} here; {how}"[:300])
        for name, how in FIXED.items()
        if name in shown and name in now and shown[name] != now[name]
    ]
    if "state" in shown and (shown["state"] in OFF) != (now.get("state") in OFF):
        is_now = f"{now['state']} now" if present is not None else "for control to say"
        fields.append(FieldProblem(path="state", message=f"is read-only, and {is_now}; POST …:pause, …:resume, …:stop"))
    if fields:
        raise Problem("invalid", said(fields), fields=fields)
    if present is not None and not conditional and shown.get("version", present.version) != present.version:
        raise Refused(
            "precondition_failed", f"{present.id} is at version {present.version} by now", "GET it again, decide again"
        )


def document_of(pipeline: str, body: Mapping[str, Any], present: PipelineDetail | None) -> Mapping[str, Any]:
    """The document of a PUT of a pipeline; of one that is sent back as GET showed it, what is in ``document``."""
    if "document" not in body:
        return body
    document = body["document"]
    fields = [
        FieldProblem(path=name, message="does not stand beside `document`")
        for name in body
        if name not in PipelineDetail.model_fields
    ]
    if not isinstance(document, dict):
        fields.append(FieldProblem(path="document", message="must be an object: the keys of a file"))
    if body.get("name", pipeline) != pipeline:
        fields.append(FieldProblem(path="name", message=f"is read-only, and the path names {pipeline}"))
    if present is not None and body.get("managed_by", present.managed_by) != present.managed_by:
        fields.append(FieldProblem(path="managed_by", message=f"is read-only, and {present.managed_by!r} here"))
    if fields or not isinstance(document, dict):
        raise Problem("invalid", said(fields), fields=fields)
    return document
