"""Where a lake is: the spellings of a catalog brought to one form, its variables resolved, its secrets kept quiet.

===============================================  ==========================================
in the file or in a variable                     normal form
===============================================  ==========================================
``sqlite:PATH``                                  ``sqlite:/absolute/path``
``postgres:dbname=… host=…``, ``dbname=…``       ``postgres:dbname=… host=…`` (libpq's words)
``postgres:URI``, ``postgresql://``, ``postgres://``  the same: DuckLake takes no URI
===============================================  ==========================================
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from shared.config import store_access
from shared.config.config_errors import UNWRITABLE
from shared.config.libpq_words import SERVICE, pinned
from shared.config.secrets import PASSWORD_WORDS, SECRET_PROPERTIES, shown_variable
from shared.config.secrets import scrub as scrub
from shared.config.substituted_words import SUBSTITUTED_WORD, refusal
from shared.contracts.errors import Error, ViaduckError
from shared.contracts.messages import LakeRef

SQLITE = "sqlite:"
POSTGRES = "postgres:"
ENV_SUFFIX = "_env"

KNOWN_WORDS = frozenset(
    {"host", "hostaddr", "port", "dbname", "user", "password", "passfile", "service", "options", "connect_timeout"}
    | {"sslmode", "sslcert", "sslkey", "sslrootcert", "sslpassword", "application_name", "target_session_attrs"}
)

PATIENCE = {
    "connect_timeout": "10",
    "keepalives_idle": "15",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
"""Connection words by which a server that is gone without a word is given up within half a minute. The kernel would
wait a quarter of an hour for an answer, and two hours where nothing was asked."""

HOW_TO_WRITE = "write sqlite:PATH, or postgres: with key=value words (dbname=… host=…) or a postgresql:// URI"


class CatalogRefused(Error):
    """A catalog that can't be used. ``str()`` says why and what to write instead, and holds no secret."""


@dataclass(frozen=True)
class ResolvedLake:
    """A lake as it is attached: catalog in normal form, variables resolved. ``str()`` and ``repr()`` show no secret."""

    catalog: str
    metadata_schema: str | None = None
    data_path: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    untrusted: bool = False
    """No file of the operator's declares it: nothing of what surrounds this process goes with it."""
    encrypted: bool = field(default=False, compare=False)
    """Whether a lake that is created here has encrypted files. Two lakes do not differ by it: a lake that exists has
    settled it."""

    @property
    def sqlite_file(self) -> Path | None:
        """The catalog's file; None where the catalog is a Postgres database."""
        return Path(self.catalog.removeprefix(SQLITE)) if self.catalog.startswith(SQLITE) else None

    @property
    def conninfo(self) -> str:
        """The connection words of a Postgres catalog, as libpq and psycopg take them. Holds secrets."""
        if self.sqlite_file is not None:
            raise ValueError(f"{self} is no Postgres catalog")
        words = self.catalog.removeprefix(POSTGRES)
        return make_conninfo("", **pinned(_parsed(words))) if self.untrusted else words

    @property
    def identity(self) -> str:
        """What two spellings of one lake have in common: server, database and metadata schema, or the real file."""
        return f"{catalog_identity(self.catalog)}#{self.schema}"

    @property
    def schema(self) -> str:
        """The schema of DuckLake's own tables: these are DuckLake's choice where nothing is said."""
        return self.metadata_schema or ("main" if self.sqlite_file else "public")

    @property
    def has_password(self) -> bool:
        return has_password(self.catalog) or bool(SECRET_PROPERTIES & self.properties.keys())

    def __str__(self) -> str:
        return without_password(self.catalog)

    def __repr__(self) -> str:
        return (
            f"ResolvedLake({str(self)!r}, metadata_schema={self.metadata_schema!r}, data_path={self.data_path!r},"
            f" properties={sorted(self.properties)})"
        )


def resolve(
    ref: LakeRef, environ: Mapping[str, str] = os.environ, base: Path | None = None, *, untrusted: bool = False
) -> ResolvedLake:
    """Look up the variables of ``ref``; a relative path in it, or in a variable, is relative to ``base``.

    ``untrusted``: no file of the operator's declares it. Who may name what is ``shared.config.declared``'s to say.
    Raises ``ViaduckError``: ``secret_missing`` for a variable that is not set, ``invalid_destination`` for what can't
    be used, ``not_allowed`` where an untrusted lake can't be kept apart from this process's ambient settings.
    """
    known = located(ref, environ, base)
    lake = replace(known, properties=resolve_properties(ref.properties, environ), untrusted=untrusted)
    _require_usable(lake, environ)
    return lake


def located(ref: LakeRef, environ: Mapping[str, str] = os.environ, base: Path | None = None) -> ResolvedLake:
    """A lake as far as it must be known to be told from others, and no further: without what opens its files.

    Raises ``ViaduckError``: ``secret_missing`` for a catalog's variable that is not set, ``invalid_destination`` for a
    catalog that can't be used.
    """
    folder = base or Path.cwd()
    try:
        catalog = parse_catalog(_catalog_text(ref, environ), folder)
    except CatalogRefused as refused:
        raise ViaduckError("invalid_destination", f"the catalog can't be used: {refused}", HOW_TO_WRITE) from None
    data_path = None if ref.data_path is None else absolute_data_path(ref.data_path, folder)
    return ResolvedLake(catalog, ref.metadata_schema, data_path)


def _require_usable(lake: ResolvedLake, environ: Mapping[str, str]) -> None:
    for path, said in store_access.faults(lake.data_path, lake.properties):
        raise ViaduckError("invalid_destination", f"{path} {said}", "correct it")
    if found := SUBSTITUTED_WORD.search(lake.metadata_schema or ""):
        raise ViaduckError("invalid_destination", f"metadata_schema {refusal(found)}", "correct it")
    if not lake.untrusted or not lake.catalog.startswith(POSTGRES):
        return
    if connection_words(lake.catalog).get("service"):
        said = "the variable's catalog names a service, whose words are those of one machine"
        raise ViaduckError("not_allowed", said, "write host, dbname and user into the variable")
    if environ.get(SERVICE):
        said = f"the environment variable {SERVICE} is set here, and libpq would put its words into this lake's"
        raise ViaduckError("not_allowed", said, "unset it, and write service=… into the lakes of the file that need it")


def _catalog_text(ref: LakeRef, environ: Mapping[str, str]) -> str:
    if ref.from_file:
        raise ViaduckError(
            "secret_missing",
            "this lake's catalog or credentials are written in the configuration file, which was not looked at",
            "give every service the same configuration file, or name environment variables in it",
        )
    given = [text for text in (ref.catalog, ref.catalog_env, ref.postgres_uri_env) if text is not None]
    if len(given) != 1:
        raise CatalogRefused("exactly one of catalog, catalog_env and postgres_uri_env must be given")
    if ref.catalog is not None:
        return ref.catalog
    return variable(given[0], environ)


def resolve_properties(properties: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """``NAME_env: VARIABLE`` becomes ``NAME`` with the variable's value."""
    return {
        name.removesuffix(ENV_SUFFIX): variable(value, environ) if name.endswith(ENV_SUFFIX) else value
        for name, value in properties.items()
    }


def variable(name: str, environ: Mapping[str, str]) -> str:
    """The value of an environment variable. Raises ``secret_missing`` where it is not set, or empty."""
    value = environ.get(name, "")
    if not value.strip():
        raise ViaduckError(
            "secret_missing",
            f"the environment variable {shown_variable(name)} is {'empty' if name in environ else 'not set'}",
            "set it where this service runs, or name another variable",
        )
    return value


def parse_catalog(text: str, base: Path) -> str:
    """Bring a catalog to its normal form. Raises ``CatalogRefused``."""
    text = text.strip()
    if not text or UNWRITABLE.search(text):
        raise CatalogRefused(f"it is empty or holds what is no character; {HOW_TO_WRITE}")
    if found := SUBSTITUTED_WORD.search(text):
        raise CatalogRefused(f"it {refusal(found)}")
    if text.lower().startswith("ducklake:"):
        raise CatalogRefused("leave out ducklake: and write only what stands behind it")
    if re.match(r"postgres(ql)?://", text) or re.match(r"[a-z_]+\s*=", text):
        return POSTGRES + _words(text)
    kind, colon, rest = text.partition(":")
    if colon and kind in ("postgres", "postgresql"):
        return POSTGRES + _words(rest.strip())
    if colon and kind == "sqlite":
        return SQLITE + _sqlite_path(rest.strip(), base)
    raise CatalogRefused(_why_not(kind if colon else ""))


def _why_not(kind: str) -> str:
    if re.fullmatch(r"[a-z]{2,12}", kind) and kind not in ("duckdb", "file", "md"):
        return f"{kind}: catalogs are not supported; {HOW_TO_WRITE}"
    return (
        "it is a DuckDB file (or a path without sqlite: before it), and a DuckDB file can be open in one process only,"
        f" while Viaduck's services are several; {HOW_TO_WRITE}"
    )


def _sqlite_path(path: str, base: Path) -> str:
    if not path or path.startswith((":memory:", "//")):
        raise CatalogRefused("sqlite: needs the path of a file behind it, such as sqlite:lake/source.sqlite")
    return str(Path(os.path.abspath(base / os.path.expanduser(path))))  # noqa: PTH100, PTH111 - Path's own raise, or follow links


def _words(text: str) -> str:
    """A connection URI or key=value words → key=value words, quoted as libpq wants them."""
    words = _parsed(text)
    if not words:
        raise CatalogRefused("postgres: needs connection words behind it, such as postgres:dbname=lake host=db")
    for port in str(words.get("port", "")).split(","):
        if port and not (port.isdecimal() and 0 < int(port) < 65536):
            raise CatalogRefused("its port is not a number from 1 to 65535")
    return make_conninfo("", **words)


def connection_words(catalog: str) -> dict[str, str]:
    """The words of a Postgres catalog in normal form. Hold secrets."""
    return _parsed(catalog.removeprefix(POSTGRES))


def _parsed(text: str) -> dict[str, str]:
    try:
        return {name: str(value) for name, value in conninfo_to_dict(text).items() if value is not None}
    except (ProgrammingError, UnicodeError, ValueError) as error:
        raise CatalogRefused(_what_libpq_meant(str(error))) from None


def _what_libpq_meant(said: str) -> str:
    """libpq quotes the text it stumbled over, which may be a piece of the password: only its kind is passed on."""
    option = re.search(r'invalid (?:connection option|URI query parameter):? "(\w+)"', said)
    near = difflib.get_close_matches(option[1], sorted(KNOWN_WORDS), 1) if option else []
    if option and near:
        return f"{option[1]} is not a connection word; write {near[0]}"
    if option:
        return "it has a word that Postgres does not know; put single quotes around a value with spaces"
    if "percent-encoded" in said:
        return "it has a % that is not followed by two hexadecimal digits; write %25 for the sign itself"
    if "quoted string" in said:
        return "it has a single quote that is never closed; write \\' for the sign itself"
    return f"it is neither key=value words nor a URI; {HOW_TO_WRITE}"


def patient(conninfo: str) -> str:
    """Connection words, with an end to waiting where they name none themselves."""
    words = _parsed(conninfo)
    return make_conninfo("", **words, **{name: value for name, value in PATIENCE.items() if name not in words})


def with_statement_timeout(conninfo: str, seconds: float) -> str:
    """Connection words by which the server ends a statement after so long, unless they say something of it."""
    words = _parsed(conninfo)
    options = words.get("options", "")
    if "statement_timeout" in options:
        return conninfo
    limited = f"{options} -c statement_timeout={round(seconds * 1000)}".strip()
    return make_conninfo("", **{**words, "options": limited})


def catalog_identity(catalog: str) -> str:
    """A catalog in normal form → where it is, without who asks and how: equal for equal catalogs, and no secret."""
    if catalog.startswith(SQLITE):
        return SQLITE + os.path.realpath(catalog.removeprefix(SQLITE))
    words = _parsed(catalog.removeprefix(POSTGRES))
    where = {
        "host": (words.get("host") or words.get("hostaddr") or "").lower().rstrip("."),
        "port": words.get("port") or "5432",
        "dbname": words.get("dbname") or words.get("user") or "",
        "service": words.get("service", ""),
        "options": words.get("options", "") if "search_path" in words.get("options", "") else "",
    }
    return POSTGRES + make_conninfo("", **{name: value for name, value in where.items() if value})


def has_password(catalog: str) -> bool:
    """Whether a catalog in normal form holds a password."""
    return catalog.startswith(POSTGRES) and bool(PASSWORD_WORDS & _parsed(catalog.removeprefix(POSTGRES)).keys())


def without_password(catalog: str) -> str:
    """A catalog in normal form, its passwords left out."""
    if not catalog.startswith(POSTGRES):
        return catalog
    words = _parsed(catalog.removeprefix(POSTGRES))
    return POSTGRES + make_conninfo("", **{name: text for name, text in words.items() if name not in PASSWORD_WORDS})


def absolute_data_path(path: str, base: Path) -> str:
    """A local data path made absolute against ``base``; one with a scheme (``s3://…``) stays as it is."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", path):
        return path
    absolute = os.path.abspath(base / os.path.expanduser(path))  # noqa: PTH100, PTH111 - as above
    return f"{absolute}/" if path.endswith("/") and absolute != "/" else absolute
