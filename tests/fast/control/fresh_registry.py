"""Registries whose tables are there already: to make them takes Alembic longer than most tests of control."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy.engine import URL, make_url

from services.control.store.database import Database


def fresh(file: Path) -> URL:
    """The URL of a registry in that file, which is made of a model unless it is there."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(_model())
    return make_url(f"sqlite:///{file}")


@cache
def _model() -> bytes:
    """What the migrations leave of an empty file."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "registry.sqlite"
        database = Database(make_url(f"sqlite:///{file}"))
        database.prepare()
        database.close()
        return file.read_bytes()
