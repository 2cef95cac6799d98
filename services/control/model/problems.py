"""Every kind of error that control answers with over HTTP: its status, its title, and what usually helps.

The reasons why a destination is parked or fails are ``shared.contracts.errors.POLICY``; one vocabulary for both, so
that no word means two things. docs/reference/errors.md explains each.
"""

from __future__ import annotations

from dataclasses import dataclass

from shared.contracts.errors import Error

PAGE = "/docs/errors"
"""Where control itself serves the explanations; a problem's ``type`` is this and the kind behind a #."""


@dataclass(frozen=True)
class ProblemKind:
    """``means`` and ``hint`` are for the client; an answer may carry a better hint."""

    status: int
    title: str
    means: str
    hint: str


KINDS: dict[str, ProblemKind] = {
    "not_found": ProblemKind(
        404, "Not found", "This path does not exist.", "The paths are listed in /openapi.json."
    ),
    "method_not_allowed": ProblemKind(
        405, "Method not allowed", "The path exists and does not accept this method.", "See /openapi.json."
    ),
    "not_acceptable": ProblemKind(
        415, "Unsupported media type", "This path does not accept this content type.", "Send application/json."
    ),
    "invalid": ProblemKind(
        422, "Invalid request", "A value in the request is not valid; `fields` names it.",
        "Correct the fields that are named.",
    ),
    "secret_in_request": ProblemKind(
        422, "A secret in the request", "A value contains a password or key, which requests must not contain.",
        "Name an environment variable instead: catalog_env, postgres_uri_env, or a property that ends in _env.",
    ),
    "not_allowed": ProblemKind(
        422, "Not on the list",
        "The server's configuration does not allow this host, path, variable or connection word.",
        "Have the operator add it to server.allowed_hosts, allowed_paths or allowed_variables.",
    ),
    "unsafe_value": ProblemKind(
        422, "No safe name", "No safe name can be derived from this routing value, so the template does not apply.",
        "PUT a destination with an id of your own and this routing value.",
    ),
    "key_reused": ProblemKind(
        422, "Key used before", "This Idempotency-Key was used for another request within the hour.",
        "Use a new key for a new request; repeat the old request unchanged.",
    ),
    "check_failed": ProblemKind(
        422, "A check failed", "The destination was checked before anything was written, and the check failed.",
        "Correct the named fields, or skip the checks with ?check=false.",
    ),
    "not_applied": ProblemKind(
        424, "Not applied", "This line is valid; another line of its all-or-nothing import failed.",
        "Correct the lines that failed and send all of them again.",
    ),
    "declared_by_file": ProblemKind(
        409, "Declared by the file",
        "A configuration file declares this destination or pipeline, so only it can change it.",
        "Change the file and send SIGHUP, or take the entry out of it.",
    ),
    "one_file_alone": ProblemKind(
        409, "One file alone", "The services were started with one file, which allows its pipeline only.",
        "Start them with a folder of files (-c FOLDER), or with several.",
    ),
    "being_removed": ProblemKind(
        409, "Being removed", "Its table and cursor are being dropped.",
        "Wait until its operation ends; DELETE with data=keep removes it at once.",
    ),
    "conflict": ProblemKind(
        409, "Conflict", "The destination's state does not allow this.", "Look at its status first."
    ),
    "in_progress": ProblemKind(
        409, "In progress", "The first request with this Idempotency-Key is not answered yet.",
        "Wait, and send it again."
    ),
    "replay_running": ProblemKind(
        409, "Being sent again",
        "A replay of this pipeline is running; there is at most one at a time.",
        "Wait until it ends, or a few seconds if its client gave up.",
    ),
    "source_is_lake": ProblemKind(
        409, "The source is a lake", "This is for pipelines that land a topic; the source of this one is a lake.",
        "Look at the dead letters instead.",
    ),
    "source_refuses": ProblemKind(
        409, "The topic takes nothing", "Control may not write to the source's topic, so no record was sent there.",
        "Grant Write on the topic to control's principal.",
    ),
    "redriven_before": ProblemKind(
        409, "Sent before", "This rejected record was sent to its topic before.",
        "Send it with `again` if the topic is to hold it twice.",
    ),
    "not_visible": ProblemKind(
        409, "Not visible from here", "Control cannot open this lake: variables are set at the appliers only.",
        "Set the variable for control too, or look from where the appliers run.",
    ),
    "not_retained": ProblemKind(
        409, "Not retained", "The lake does not have this snapshot, or no longer retains it.",
        "Choose a retained snapshot.",
    ),
    "precondition_failed": ProblemKind(
        412, "Changed meanwhile", "It was changed after you read it: its version is not the one in If-Match.",
        "GET it again, then decide.",
    ),
    "too_large": ProblemKind(
        413, "Too large", "The body exceeds this path's limit.", "Send fewer entries per request."
    ),
    "unauthorized": ProblemKind(
        401, "A token is needed", "The request has no valid token.",
        "Send Authorization: Bearer … with a token of `viaduck token create`.",
    ),
    "forbidden": ProblemKind(
        403, "Insufficient scope", "The token's scope does not allow this.", "Use a token with the named scope."
    ),
    "closed": ProblemKind(
        403, "Closed",
        "Control is reachable from other machines and has no token, so it serves only its health.",
        "Set server.token_env, or create a token with `viaduck token create`; without one, connect from this machine.",
    ),
    "cross_site": ProblemKind(
        403, "From another site", "A browser sent this for a page of another site, or with a foreign host name.",
        "Open control's own page, under the name or address that it listens on; set server.public_url to the address"
        " of a proxy before it.",
    ),
    "too_many_failures": ProblemKind(
        429, "Too many failures", "The token is wrong, after too many wrong ones.",
        "Use a valid token, which is accepted at once, or wait as long as Retry-After says.",
    ),
    "too_many_streams": ProblemKind(
        503, "Too many event streams", "Too many event streams are open.",
        "Close some of them. A page without a stream shows the state at the time of loading.",
    ),
    "unavailable": ProblemKind(
        503, "Unavailable", "A dependency of control does not answer. Nothing was changed.",
        "Try again; /readyz names it. Replication continues meanwhile.",
    ),
    "defect": ProblemKind(500, "Unexpected", "An unexpected error occurred.", "See control's log."),
}  # fmt: skip

BY_STATUS = {
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
    415: "not_acceptable",
    401: "unauthorized",
    403: "forbidden",
    503: "unavailable",
}


def uri(kind: str) -> str:
    return f"{PAGE}#{kind}"


@dataclass(frozen=True)
class FieldError:
    """What is wrong with one field of an entry. ``kind`` is a key of ``KINDS``."""

    path: str
    message: str
    kind: str = "invalid"


class InvalidEntry(Error):
    """What was sent can't be used; with everything that is wrong with it."""

    hint = ""
    """What is wrong with each field says what to write instead."""

    def __init__(self, faults: list[FieldError]) -> None:
        super().__init__("; ".join(f"{fault.path}: {fault.message}" for fault in faults))
        self.faults = faults
