"""What DuckDB, the drivers and the file system say → our own errors, typed, scrubbed of secrets, with a hint.

DuckDB reports everything that a catalog or a store says as text; these patterns are the only place that reads it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import duckdb

from shared.config.secrets import told
from shared.contracts.errors import DestinationError, ViaduckError

MAX_MESSAGE = 600

ABSENT = re.compile(
    r"there is no catalog file|creating a new DuckLake is explicitly disabled"
    r'|relation "(\S*\.)?ducklake_snapshot" does not exist'
)


PREAMBLE = ("Failed to attach DuckLake MetaData ", 'Unable to connect to Postgres at "', '": ')
"""DuckDB tells the connection words twice before it comes to the point: what stands between these, too."""

STORE_SAID = re.compile(r"(\(HTTP (?:code )?\d[^)]*+\))\s*\n\s*\n")
"""What the store itself gives as its reason begins only after an empty line."""

PLACE = re.compile(r"\b[a-z][a-z0-9]*://[^\s'\"]*")
"""An address says nothing of what went wrong, though one in a hundred file names has a 404 in it."""

MISSING = re.compile(r"No files found that match|No such file or directory|HTTP (code )?404|NoSuchKey")


QUERIES, QUERY_ENDS = ('Failed to execute query "', 'Failed to prepare query "'), '": '
"""DuckDB repeats verbatim what it asked of a catalog's database, with every value in it, before it says why not.
"""

EXCERPT = re.compile(r"\nLINE \d+: [^\n]*\n *\^\s*$")
"""A line of the statement, with a mark under the place: what comes last in an error."""

OF_A_VALUE = (duckdb.ConversionException, duckdb.OutOfRangeException, duckdb.ConstraintException)
"""Errors that quote a value, which may be any text."""

REFUSED_AT_COMMIT = re.compile(r"Failed to flush changes into DuckLake: (ERROR: +)?syntax error at or near")
"""DuckLake wrote values into the statements of its COMMIT that made them none: nothing of it has happened."""


class LakeAbsent(DestinationError):
    """The catalog can be reached and holds no lake yet: the first seed makes one."""

    def __init__(self, message: str) -> None:
        super().__init__(
            "lake_missing", message, "the lake is made by its first seed; correct the catalog if it should exist"
        )


@dataclass(frozen=True)
class Pattern:
    type: str
    said: re.Pattern[str]
    hint: str


def _pattern(kind: str, said: str, hint: str) -> Pattern:
    return Pattern(kind, re.compile(said, re.IGNORECASE | re.DOTALL), hint)


PATTERNS = (
    _pattern(
        "foreign_files",
        r"operations are disabled by configuration|is disabled through configuration",
        "the lake's catalog names a file outside its data path: its owner removes that entry, or creates a new lake",
    ),
    _pattern(
        "storage_failed",
        r"Secret Validation Failure",
        "this service finds no credentials for a lake with s3_provider: credential_chain; give its machine a role, or"
        " set what that chain looks at; it is tried again automatically",
    ),
    _pattern(
        "storage_failed",
        r"ExpiredToken",
        "credentials of a role are renewed by themselves; replace a session token that is set by hand, and restart this"
        " service; it is tried again automatically",
    ),
    _pattern(
        "destination_busy",
        r"transaction conflict|database is locked|has been (created|altered|dropped) by another transaction"
        r"|write-write conflict|primary key.*ducklake_snapshot|duplicate key value violates"
        r"|could not serialize|deadlock detected|UNIQUE constraint failed",
        "another writer was quicker; it is tried again automatically",
    ),
    _pattern(
        "access_denied",
        r"password authentication failed|no password supplied|permission denied for|must be owner of|pg_hba\.conf"
        r"|role .* does not exist|is not permitted to log in",
        "give the role of this catalog the rights it needs (CREATE and all on its schema), or correct the credentials",
    ),
    _pattern(
        "storage_refused",
        r"NoSuchBucket",
        "create the bucket of data_path, or correct data_path or s3_endpoint, then resume",
    ),
    _pattern(
        "storage_refused",
        r"SignatureDoesNotMatch|InvalidAccessKeyId|InvalidToken",
        "the store does not accept the keys: correct s3_access_key_id and s3_secret_access_key, then resume",
    ),
    _pattern(
        "storage_refused",
        r"HTTP 40[13]|HTTP code 40[13]|AccessDenied|Permission denied"
        r"|Read-only file system|Not a directory|Operation not permitted|attempt to write a readonly database"
        r"|unable to open database file|Failed to create directory|FileNotFoundError|NotADirectoryError"
        r"|HTTP 404",
        "make the data path and the catalog writable for Viaduck, or correct the path and its credentials, then resume",
    ),
    _pattern(
        "storage_failed",
        r"No space left|disk quota|database or disk is full|disk I/O error|HTTP (code )?5\d\d|HTTP code 404|SlowDown"
        r"|could not write",
        "free space on, or repair, the store behind the data path; it is tried again automatically",
    ),
    _pattern(
        "lake_missing",
        r'database ".*?" does not exist|schema ".*?" does not exist',
        "create the database (a SQLite catalog is created by the seed itself), or correct the catalog, then resume",
    ),
    _pattern(
        "invalid_destination",
        r"data_path is not set",
        "a new lake needs a data_path in the file; add one",
    ),
    _pattern(
        "lake_incompatible",
        r"DuckLake.*version.*(not supported|mismatch)|Only DuckLake versions|file is not a database"
        r"|DATA_PATH parameter .* does not match|unsupported DuckLake version",
        "the catalog is not a DuckLake this version can use, or its data path differs from the stored one",
    ),
    _pattern(
        "lake_incompatible",
        r"^(TypeMismatchException|InvalidInputException)\b.*(Failed to \w+ .*DuckLake|Unsupported setting scope"
        r"|Unrecognized nested type|Failed to parse DuckLake type)",
        "another program wrote to the catalog's own tables: restore them, or create a new lake; then resume",
    ),
    _pattern(
        "destination_unreachable",
        r"connection refused|could not connect|unable to connect|could not translate host name|timeout expired"
        r"|server closed the connection|connection to server|terminating connection|too many clients|Connection reset"
        r"|the database system is (starting up|shutting down)|remaining connection slots|connection.*(lost|closed)"
        r"|Could not (establish|resolve)|Connection error|timed out|SSL SYSCALL|idle-in-transaction timeout"
        r"|due to statement timeout|no answer within",
        "check that the server runs and can be reached from the applier; it is tried again automatically",
    ),
    _pattern(
        "value_refused",
        r"do not support negative intervals",
        "DuckLake can't write a negative INTERVAL to a file: change it at the source, then resume",
    ),
    _pattern(
        "value_refused",
        REFUSED_AT_COMMIT.pattern,
        "DuckLake can't write a text of this range into its catalog: change it at the source, then resume",
    ),
    _pattern(
        "value_refused",
        r"Conversion Error|could not cast|Could not convert|Constraint Error|Out of Range|Failed to cast",
        "a value of the source can't be written to the destination's table; compare the two tables' columns",
    ),
    _pattern(
        "storage_failed",
        r"Out of Memory|could not allocate",
        "raise applier.memory_limit, or give the applier's temporary folder more room; it is tried again automatically",
    ),
    _pattern(
        "storage_failed",
        r"IO Error|OSError|InternalException|INTERNAL Error",
        "see the message; it is tried again automatically",
    ),
)


def classify(error: BaseException, doing: str) -> ViaduckError:
    """The typed error for something that a catalog, a store or DuckDB itself raised while ``doing``."""
    if isinstance(error, ViaduckError):
        return error
    said = first_lines(error)
    reason = PLACE.sub("", _without_value(error, said))
    if ABSENT.search(reason):
        return LakeAbsent(f"{doing}: {said}")
    for pattern in PATTERNS:
        if pattern.said.search(reason):
            return DestinationError(pattern.type, f"{doing}: {said}", pattern.hint)
    return DestinationError(
        "internal", f"{doing}: {said}", "unexpected; see the applier's log. It is tried again by itself"
    )


def first_lines(error: BaseException) -> str:
    """What an exception says, without its secrets, its SQL and its second page."""
    text = _to_the_point(told(f"{type(error).__name__}: {_without_statement(str(error))}"))
    text = STORE_SAID.sub(r"\1 ", text)
    text = re.split(r"\n\s*\n|\nLINE \d+:", text)[0].replace("\n", " ").strip()
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…"


def _without_statement(text: str) -> str:
    """An error without the SQL that it repeats: up to the last place where that can end, whatever its values hold."""
    excerpt = EXCERPT.search(text)
    text = text if excerpt is None else text[: excerpt.start()]
    start = min((found for query in QUERIES if (found := text.find(query)) >= 0), default=-1)
    if start < 0:
        return text
    end = text.rfind(QUERY_ENDS)
    return text[:start] + (text[end + len(QUERY_ENDS) :] if end > start else "")


def _without_value(error: BaseException, said: str) -> str:
    """The part of a message that identifies the error: an error that quotes a value is cut there."""
    if isinstance(error, OF_A_VALUE) or (isinstance(error, duckdb.InvalidInputException) and _may_quote(said)):
        return re.split("['\"]", said, maxsplit=1)[0]
    return said


def _may_quote(said: str) -> bool:
    """Whether an error about an input quotes a value of it; what DuckLake says of itself quotes names."""
    before = re.split("['\"]", said, maxsplit=1)[0]
    return "DuckLake" not in before and "DATA_PATH" not in before


def _reason(error: BaseException) -> str:
    return _without_value(error, _without_statement(str(error)))


def was_refused(error: BaseException) -> bool:
    """Whether a COMMIT failed before anything of it happened, and would fail again: its outcome is not unknown."""
    return REFUSED_AT_COMMIT.search(_reason(error)) is not None


def _to_the_point(text: str) -> str:
    """``text`` without its first ``PREAMBLE``."""
    start = text.find(PREAMBLE[0])
    end = start
    for part in PREAMBLE:
        found = text.find(part, end) if end >= 0 else -1
        end = found + len(part) if found >= 0 else -1
    return text if end < 0 else text[:start].removesuffix("IO Error: ") + text[end:]


def misses_file(error: BaseException) -> bool:
    """Whether a file was looked for, and the store or the file system says that it is not there."""
    return MISSING.search(PLACE.sub("", _reason(error))) is not None


def invalidates_instance(error: BaseException) -> bool:
    """Whether the whole DuckDB instance is lost (H4): nothing works on it any more, and it must be replaced."""
    said = _reason(error)
    return any(part in said for part in ("database has been invalidated", "FATAL Error", "INTERNAL Error"))


def loses_attachment(error: BaseException) -> bool:
    """Whether an attached lake should be attached again before the next statement."""
    said = _reason(error).lower()
    return any(
        part in said
        for part in ("connection", "does not exist", "terminating", "ssl syscall", "idle-in-transaction", "timeout")
    )
