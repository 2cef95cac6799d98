"""The audit trail of the registry, for an expiry while control is away: what control itself would write."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from sqlalchemy import Engine, create_engine, insert, select, table
from sqlalchemy import column as named
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError

from services.cli.verify.registered_destinations import registry_url
from shared.config.model import Config
from shared.config.secrets import told
from shared.contracts.errors import DependencyError

AUDIT = table(
    "audit", *map(named, ("pipeline", "version", "at", "author", "destination", "deed", "generation", "changes"))
)
PIPELINES = table("pipelines", named("name"), named("version"))

DEED, WHOLE = "source_expired", "the pipeline"
"""As control calls them."""

AUTHOR = "viaduck source expire"


def note(
    config: Config, pipelines: Collection[str], what: Mapping[str, Any], environ: Mapping[str, str] = os.environ
) -> None:
    """Write an entry for each of the pipelines, in one transaction. ``what``: what was expired, by name.

    Raises ``DependencyError`` where that can't be; then nothing was written.
    """
    engine = _engine(config, environ)
    shared = {"at": datetime.now(UTC).isoformat(timespec="microseconds"), "author": AUTHOR, "destination": WHOLE,
              "deed": DEED, "generation": 0,
              "changes": json.dumps({name: (None, value) for name, value in what.items()})}  # fmt: skip
    try:
        with engine.begin() as con:
            for name in pipelines:
                version = con.execute(select(PIPELINES.c.version).where(PIPELINES.c.name == name)).scalar() or 0
                con.execute(insert(AUDIT).values(pipeline=name, version=version, **shared))
    except SQLAlchemyError as error:
        said = told(str(getattr(error, "orig", None) or error)).splitlines()[0]
        hint = "start control, or let this role write to the registry; nothing was expired"
        raise DependencyError("registry", f"no entry in the audit trail: {said}", hint) from None
    finally:
        engine.dispose()


def _engine(config: Config, environ: Mapping[str, str]) -> Engine:
    """Never made by writing to it: it was read before."""
    url = registry_url(config, environ)
    if url is not None and url.get_backend_name() != "sqlite":
        return create_engine(url, connect_args={"connect_timeout": 3})
    file = str(config.state_dir / "registry.sqlite") if url is None else url.database or ""
    return create_engine(URL.create("sqlite", database=f"file:{quote(file)}", query={"mode": "rw", "uri": "true"}))
