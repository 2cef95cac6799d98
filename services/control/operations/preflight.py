"""Checks a destination's lake before anything is written: would a seed work?

What control cannot check, because a variable is set only at the appliers, is reported as unchecked and blocks nothing.
A lake may be anyone's, and its server may answer nothing: only some of control's threads wait for lakes (``looking``).
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from services.control.model.lifecycle import Declared
from services.control.operations.s3_probe import Bucket, S3Refused
from shared.config.catalogs import ResolvedLake
from shared.config.declared import Lakes
from shared.config.model import Config
from shared.contracts.errors import DependencyError, ViaduckError
from shared.lake.catalog.reader import CatalogReader, Column
from shared.lake.checks.layout_keys import keys_of
from shared.lake.connection.attach import is_beside
from shared.lake.connection.store_secrets import undeclared
from shared.lake.cursor import SCHEMA, cursor_name
from shared.lake.failure import LakeAbsent

NAMES = ("catalog", "table", "data_path")

MOST_LOOKS = 16
"""Of the 40 threads that answer requests: the others can still pause, resume and change."""

FREE_WITHIN_S = 0.5

_free = threading.BoundedSemaphore(MOST_LOOKS)


@contextmanager
def looking() -> Iterator[None]:
    """Around a look at a lake for a request. Raises ``DependencyError`` where too many wait already."""
    if not _free.acquire(timeout=FREE_WITHIN_S):
        said = f"{MOST_LOOKS} requests wait for lakes already"
        raise DependencyError("lakes", said, "try again in a minute; a catalog among them may not answer")
    try:
        yield
    finally:
        _free.release()


@dataclass(frozen=True)
class PreflightFinding:
    """What came of one check: ``ok`` None means that it could not be made here. ``type`` as for parked reasons."""

    check: str
    ok: bool | None
    message: str
    hint: str = ""
    type: str | None = None


class Probe:
    """Checks of one pipeline's destinations. May be used from several threads."""

    def __init__(
        self, config: Config, columns: Sequence[Column], environ: Mapping[str, str], bucket: type[Bucket] = Bucket
    ) -> None:
        self._config = config
        self._columns = columns
        self._bucket = bucket
        self._lakes = Lakes(config, environ)

    def findings(self, declared: Declared) -> list[PreflightFinding]:
        try:
            lake = self._lakes.declared(declared.id, declared.routing_value, declared.lake)
        except ViaduckError as error:
            unknown = error.type == "secret_missing"
            said = f"not checked: {error.message}" if unknown else error.message
            return [PreflightFinding("catalog", None if unknown else False, said, error.hint, error.type)]
        with looking():
            return [*self._misfits(declared), *self._look(declared, lake)]

    def _misfits(self, declared: Declared) -> Iterator[PreflightFinding]:
        """A layout that the source's columns do not allow. How the source is laid out itself is not looked at."""
        try:
            keys_of(declared.layout, self._columns, None)
        except ViaduckError as error:
            yield PreflightFinding("layout", False, error.message, error.hint, error.type)

    def is_foreign(self, declared: Declared) -> bool:
        """Whether a lake is there already in which a destination has no cursor. Raises ``ViaduckError``."""
        resolved = self._lakes.catalog(declared.id, declared.routing_value, declared.lake)
        try:
            with looking(), closing(CatalogReader(resolved)) as catalog:
                catalog.head()
                return not catalog.has_table(SCHEMA, cursor_name(self._config.pipeline, declared.id))
        except (LakeAbsent, LookupError):
            return False

    def _look(self, declared: Declared, lake: ResolvedLake) -> Iterator[PreflightFinding]:
        data_path: str | None = lake.data_path
        try:
            with closing(CatalogReader(lake)) as catalog:
                head = catalog.head().snapshot
                yield _encrypted(declared, catalog) or PreflightFinding(
                    "catalog", True, f"holds a lake at snapshot {head}"
                )
                yield self._table(declared, catalog, head)
                told = catalog.data_path()
                if data_path is None and lake.untrusted and not is_beside(told, lake):
                    refused = undeclared(told, lake)
                    yield PreflightFinding("data_path", False, refused.message, refused.hint, refused.type)
                    return
                data_path = data_path or told
        except (LakeAbsent, LookupError):
            yield self._absent(lake)
        except ViaduckError as error:
            yield PreflightFinding("catalog", False, error.message, error.hint, error.type)
            return
        yield self._data_path(data_path, lake)

    def _absent(self, lake: ResolvedLake) -> PreflightFinding:
        file = lake.sqlite_file
        if file is None:
            return PreflightFinding("catalog", True, "can be reached and holds no lake yet; its first seed creates one")
        return _written("catalog", file.parent, "there is no lake yet; its first seed creates one")

    def _table(self, declared: Declared, catalog: CatalogReader, head: int) -> PreflightFinding:
        name = f"{declared.schema_name}.{declared.table}"
        found = catalog.table(declared.schema_name, declared.table, head)
        if found is None:
            return PreflightFinding("table", True, f"there is no {name} yet; its first seed creates it")
        ours = catalog.has_table(SCHEMA, cursor_name(self._config.pipeline, declared.id))
        if ours:
            return PreflightFinding("table", True, f"{name} is ours")
        if [(c.name, c.type) for c in found.columns] != [(c.name, c.type) for c in self._columns]:
            hint = "give it columns with equal names, types and order, or choose another table"
            return PreflightFinding("table", False, f"{name} has other columns than the source", hint, "table_mismatch")
        if catalog.has_rows(declared.schema_name, declared.table):
            hint = "empty or rename it, or choose another table"
            said = f"{name} holds rows that Viaduck did not write"
            return PreflightFinding("table", False, said, hint, "table_not_empty")
        return PreflightFinding("table", True, f"{name} is empty and has the source's columns")

    def _data_path(self, path: str | None, lake: ResolvedLake) -> PreflightFinding:
        if path is None:
            if lake.sqlite_file is not None:
                return PreflightFinding(
                    "data_path", True, "beside the catalog, in a folder of its name that ends in .files"
                )
            return PreflightFinding("data_path", False, "a lake on Postgres that does not exist yet needs one",
                           "write data_path", "invalid_destination")  # fmt: skip
        if path.startswith("s3://"):
            return self._s3(path, lake)
        if "://" in path:
            return PreflightFinding("data_path", None, "not checked: only local paths and s3:// can be")
        return _written("data_path", Path(path), "a probe was written and removed")

    def _s3(self, path: str, lake: ResolvedLake) -> PreflightFinding:
        if "s3_provider" in lake.properties:
            return PreflightFinding(
                "data_path", None, "not checked: it is opened with credentials that the appliers have"
            )
        if not {"s3_access_key_id", "s3_secret_access_key"} <= lake.properties.keys():
            return PreflightFinding(
                "data_path", None, "not checked: no keys are given, the appliers' environment decides"
            )
        try:
            self._bucket(path, lake.properties).probe()
        except S3Refused as refused:
            hint = "check bucket, keys, endpoint, region and rights (put and delete)"
            return PreflightFinding("data_path", False, str(refused), hint, "storage_refused")
        return PreflightFinding("data_path", True, "a probe was written and removed")


def _encrypted(declared: Declared, catalog: CatalogReader) -> PreflightFinding | None:
    """A lake that is to be encrypted, and was not created so."""
    if not declared.layout.encrypted or catalog.is_encrypted():
        return None
    said = "holds a lake that was created without encryption, which can't be changed"
    hint = "name a catalog that holds no lake yet, or set layout.encrypted: false"
    return PreflightFinding("catalog", False, said, hint, "invalid_destination")


def _written(check: str, folder: Path, said: str) -> PreflightFinding:
    """Write a file where ``folder`` is or will be, and take it away again."""
    there = folder
    try:
        there = next(each for each in (folder, *folder.parents) if each.exists() or each == each.parent)
        with tempfile.NamedTemporaryFile(dir=there, prefix=".viaduck-probe-"):
            return PreflightFinding(check, True, said)
    except OSError as error:
        hint = "give the service's user the right to write there, or choose another path"
        return PreflightFinding(check, False, f"{there} can't be written: {error.strerror}", hint, "storage_refused")
