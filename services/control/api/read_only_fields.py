"""What a GET answered, sent back by a PUT: its read-only fields are left out, unless they ask for something else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from services.control.api.models import Detail, PipelineDetail
from services.control.model.lifecycle import Refused
from services.control.view.destination_status import OFF
from services.control.web.problems import FieldProblem, HttpProblem, said

FIXED = {
    "pipeline": "the path names the pipeline",
    "generation": "POST …:reseed or …:rewind starts a new generation",
    "managed_by": "the file's destinations are changed in the file",
    "rewound_to": "POST …:rewind starts a new generation at a snapshot",
    "lake": "change catalog, data_path, metadata_schema or properties instead",
}
"""Read-only fields that a client may try to change this way, with the way to change them. The rest change on their own.
"""


def require_unchanged(shown: Mapping[str, Any], pipeline: str, present: Detail | None, *, conditional: bool) -> None:
    """Raises ``HttpProblem`` where a read-only field asks for something, ``Refused`` where it is of another version.

    ``present`` is None where there is no such destination yet. ``conditional``: an If-Match says what was seen.
    """
    now = {"pipeline": pipeline} if present is None else present.model_dump(mode="json", by_alias=True)
    fields = [
        FieldProblem(path=name, message=f"is read-only, and {now[name]!r} here; {how}"[:300])
        for name, how in FIXED.items()
        if name in shown and name in now and shown[name] != now[name]
    ]
    if "state" in shown and (shown["state"] in OFF) != (now.get("state") in OFF):
        is_now = f"{now['state']} now" if present is not None else "set by control"
        fields.append(FieldProblem(path="state", message=f"is read-only, and {is_now}; POST …:pause, …:resume, …:stop"))
    if fields:
        raise HttpProblem("invalid", said(fields), fields=fields)
    if present is not None and not conditional and shown.get("version", present.version) != present.version:
        raise Refused(
            "precondition_failed", f"{present.id} is at version {present.version} now", "GET it again, then decide"
        )


def document_of(pipeline: str, body: Mapping[str, Any], present: PipelineDetail | None) -> Mapping[str, Any]:
    """The document of a PUT of a pipeline; if the body is what GET returned, its ``document``."""
    if "document" not in body:
        return body
    document = body["document"]
    fields = [
        FieldProblem(path=name, message="cannot be combined with `document`")
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
        raise HttpProblem("invalid", said(fields), fields=fields)
    return document
