"""Every kind of error that control answers with over HTTP: its status, its title, and what usually helps.

The reasons why a destination is parked or fails are ``shared.contracts.errors.POLICY``; one vocabulary for both, so
that no word means two things. docs/reference/errors.md explains each.
"""

from __future__ import annotations

from dataclasses import dataclass

PAGE = "/docs/errors"
"""Where control itself serves the explanations; a problem's ``type`` is this and the kind behind a #."""


@dataclass(frozen=True)
class Kind:
    """``means`` and ``hint`` are for whoever meets it; an answer may carry a better hint."""

    status: int
    title: str
    means: str
    hint: str


KINDS: dict[str, Kind] = {
    "not_found": Kind(
        404, "Not found", "There is nothing at this path.", "The paths are listed in /openapi.json."
    ),
    "method_not_allowed": Kind(
        405, "Method not allowed", "The path is there and does not take this method.", "See /openapi.json."
    ),
    "not_acceptable": Kind(
        415, "Unsupported media type", "The body is of another kind than this path takes.", "Send application/json."
    ),
    "invalid": Kind(
        422, "Invalid request", "Something in the request can't be used; `fields` says what.",
        "Correct the fields that are named.",
    ),
    "secret_in_request": Kind(
        422, "A secret in the request", "A value holds a password or key, which must not travel.",
        "Name an environment variable instead: catalog_env, postgres_uri_env, or a property that ends in _env.",
    ),
    "not_allowed": Kind(
        422, "Not on the list",
        "The server's configuration allows other hosts, paths, variables or connection words only.",
        "Ask for it to be added to server.allowed_hosts, allowed_paths or allowed_variables, or for a variable.",
    ),
    "unsafe_value": Kind(
        422, "No safe name", "No safe name can be made of this routing value, so the template can't be used for it.",
        "PUT a destination with an id of your own and this routing value.",
    ),
    "key_reused": Kind(
        422, "Key used before", "This Idempotency-Key came with another request within the hour.",
        "Send a new request with a new key; the same one again exactly as it was.",
    ),
    "check_failed": Kind(
        422, "A check failed", "The destination was looked at before anything was written, and it would not work.",
        "Correct what `fields` names, or switch the checks off with ?check=false.",
    ),
    "not_applied": Kind(
        424, "Not applied", "Nothing is wrong with this line; another one of its all-or-nothing import failed.",
        "Correct the lines that failed and send all of them again.",
    ),
    "declared_by_file": Kind(
        409, "Declared by the file",
        "A configuration file declares this destination or pipeline, so only it can change it.",
        "Change the file and send SIGHUP, or take the entry out of it.",
    ),
    "one_file_alone": Kind(
        409, "One file alone", "The services were started with one file, and then there is room for its pipeline only.",
        "Start them with a folder of files (-c FOLDER), or with several.",
    ),
    "being_removed": Kind(
        409, "Being removed", "Its table and cursor are being dropped.",
        "Wait until its operation is over; DELETE with data=keep forgets it at once.",
    ),
    "conflict": Kind(
        409, "Conflict", "The destination's state does not allow this.", "Look at its status first."
    ),
    "in_progress": Kind(
        409, "In progress", "The first request with this Idempotency-Key is not answered yet.",
        "Wait, and send it again."
    ),
    "replay_running": Kind(
        409, "Being sent again",
        "Messages of this pipeline are being sent again already; one asker does so at a time.",
        "Wait until that is over, or a few seconds where it was given up.",
    ),
    "not_visible": Kind(
        409, "Not visible from here", "Control can't open this lake: what it takes is known to the appliers alone.",
        "Set the variable for control too, or look from where the appliers run.",
    ),
    "not_retained": Kind(
        409, "Not retained", "The source no longer keeps that snapshot, or does not have it yet.",
        "Choose a snapshot that it retains.",
    ),
    "precondition_failed": Kind(
        412, "Changed meanwhile", "It was changed after you read it: If-Match names another version.",
        "GET it again, and decide again.",
    ),
    "too_large": Kind(413, "Too large", "The body is larger than this path takes.", "Send less at once."),
    "unauthorized": Kind(
        401, "A token is needed", "The request has no valid token.",
        "Send Authorization: Bearer … with a token of `viaduck token create`.",
    ),
    "forbidden": Kind(
        403, "Insufficient scope", "The token's scope does not allow this.", "Use a token of the scope that is named."
    ),
    "closed": Kind(
        403, "Closed",
        "Control is reached from beyond this machine, directly or through a proxy, and has no token: only its health is"
        " told.",
        "Set server.token_env, or make a token with `viaduck token create`; without one, ask from this machine itself.",
    ),
    "cross_site": Kind(
        403, "From another site", "A browser sent this for a page of another site, or under a strange name.",
        "Open control's own page, under the name or address that it listens on; set server.public_url to the address"
        " of a proxy before it.",
    ),
    "too_many_failures": Kind(
        429, "Too many failures", "The token is wrong, and so were too many before it.",
        "Correct the token: a valid one is taken at once. For another guess, wait as long as Retry-After says.",
    ),
    "too_many_streams": Kind(
        503, "Too many event streams", "Too many pages are open that follow what happens.",
        "Close some of them; a page without a stream shows what is, when it is loaded.",
    ),
    "unavailable": Kind(
        503, "Unavailable", "Something that control depends on does not answer. Nothing has changed.",
        "Try again; /readyz says what is missing. The data plane goes on meanwhile.",
    ),
    "defect": Kind(500, "Unexpected", "Something went wrong that should not.", "See control's log."),
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
