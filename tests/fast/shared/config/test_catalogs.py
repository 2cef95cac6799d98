"""Catalogs: every spelling comes to one form, equal lakes are told to be equal, and passwords stay where they are."""

from __future__ import annotations

import pickle
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from shared.config.catalogs import CatalogRefused, ResolvedLake, parse_catalog, resolve, without_password
from shared.contracts.errors import ViaduckError
from shared.contracts.messages import LakeRef
from tests.servers.postgres import Postgres

BASE = Path("/folder")


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("sqlite:lake/source.sqlite", "sqlite:/folder/lake/source.sqlite"),
        ("sqlite:../a b.db", "sqlite:/a b.db"),
        ("sqlite:/x/./y/../a.db", "sqlite:/x/a.db"),
        ("  sqlite: a.db ", "sqlite:/folder/a.db"),
        ("postgres:dbname=lake host=db", "postgres:dbname=lake host=db"),
        ("postgres: dbname = lake", "postgres:dbname=lake"),
        ("dbname=lake host=db port=5433", "postgres:dbname=lake host=db port=5433"),
        ("host=db dbname='my lake'", "postgres:dbname='my lake' host=db"),
        ("postgres:postgresql://db/lake", "postgres:dbname=lake host=db"),
        ("postgresql://db:5433/lake", "postgres:dbname=lake host=db port=5433"),
        ("postgres://db/lake", "postgres:dbname=lake host=db"),
        ("postgresql:dbname=lake", "postgres:dbname=lake"),
        ("postgresql:///lake", "postgres:dbname=lake"),
        ("postgresql://db/lake?sslmode=require", "postgres:dbname=lake host=db sslmode=require"),
        ("postgresql://[::1]/lake", "postgres:dbname=lake host=::1"),
        ("postgresql://a:1,b:2/lake", "postgres:dbname=lake host=a,b port=1,2"),
        ("postgresql://u%40x@db/a%20b", "postgres:user=u@x dbname='a b' host=db"),
    ],
)
def test_every_spelling_of_a_catalog_comes_to_one_form(written: str, normal: str) -> None:
    assert parse_catalog(written, BASE) == normal


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("duckdb:lake.ddb", "one process only"),
        ("lake.ducklake", "one process only"),
        ("/abs/lake.db", "one process only"),
        (":memory:", "one process only"),
        ("md:lake", "one process only"),
        ("C:\\lake.db", "one process only"),
        ("mysql:db=lake", "mysql: catalogs are not supported"),
        ("ducklake:sqlite:a.db", "leave out ducklake:"),
        ("sqlite:", "needs the path of a file"),
        ("sqlite::memory:", "needs the path of a file"),
        ("sqlite:///a.db", "needs the path of a file"),
        ("postgres:", "needs connection words"),
        ("", "it is empty"),
        ("sqlite:a\0b", "no character"),
        ("postgres:dbname=\udcff", "no character"),
        ("postgres:hst=db dbname=lake", "hst is not a connection word; write host"),
        ("nonsense=1", "a word that Postgres does not know"),
        ("postgres:dbname='lake", "a single quote that is never closed"),
        ("postgresql://u:p%zz@db/lake", "write %25"),
        ("postgresql://db:port/lake", "not a number from 1 to 65535"),
        ("postgres:dbname=lake port=70000", "not a number from 1 to 65535"),
        ("postgres:lake", "neither key=value words nor a URI"),
    ],
)
def test_a_catalog_that_cannot_be_used_is_refused_with_the_reason(written: str, why: str) -> None:
    with pytest.raises(CatalogRefused) as raised:
        parse_catalog(written, BASE)
    assert why in str(raised.value)


@pytest.mark.parametrize(
    "written",
    [
        "postgresql://u:hunter2%zz@db/lake",
        "postgres:dbname=lake password=x hunter2",
        "postgres:dbname=lake password='hunter2",
        "postgres:dbname=lake password=x hunter2=1",
        "postgresql://u:hunter2@db:x/lake",
        "hunter2",
        "mysql://u:hunter2@db/lake",
    ],
)
def test_a_refusal_never_shows_what_may_be_a_password(written: str) -> None:
    with pytest.raises(CatalogRefused) as raised:
        parse_catalog(written, BASE)
    assert "hunter2" not in str(raised.value)


words = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=12)


@given(words, words, words)
def test_a_uri_means_the_same_as_words_whatever_its_parts_hold(user: str, password: str, database: str) -> None:
    uri = f"postgresql://{quote(user, '')}:{quote(password, '')}@db:5433/{quote(database, '')}"
    lake = ResolvedLake(parse_catalog(uri, BASE))
    known = {"user": user, "password": password, "host": "db", "port": "5433", "dbname": database}
    assert conninfo_to_dict(lake.conninfo) == known
    assert parse_catalog(lake.catalog, BASE) == lake.catalog
    shown = conninfo_to_dict(without_password(lake.catalog).removeprefix("postgres:"))
    assert shown == {name: value for name, value in known.items() if name != "password"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("postgres:dbname=lake host=db", "postgres:host=db port=5432 dbname=lake"),
        ("postgresql://a:x@db/lake", "postgresql://b:y@DB:5432/lake?sslmode=require&application_name=z"),
        ("postgresql://lake@db", "host=db user=someone dbname=lake"),
        ("sqlite:a.db", "sqlite:/folder/b/../a.db"),
    ],
)
def test_two_spellings_of_one_lake_have_one_identity(one: str, other: str) -> None:
    assert _lake(one).identity == _lake(other).identity


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("host=localhost dbname=lake", "host=127.0.0.1 dbname=lake"),
        ("host=db dbname=lake", "host=db dbname=lake2"),
        ("host=db dbname=lake", "host=db dbname=lake port=5433"),
        ("host=db dbname=lake", "host=db dbname=lake options=-csearch_path=s"),
        ("sqlite:a.db", "sqlite:A.db"),
    ],
)
def test_two_lakes_have_two_identities(one: str, other: str) -> None:
    assert _lake(one).identity != _lake(other).identity


def test_a_metadata_schema_makes_another_lake_and_the_default_one_is_public() -> None:
    lake = parse_catalog("dbname=lake", BASE)
    assert ResolvedLake(lake).identity == ResolvedLake(lake, "public").identity != ResolvedLake(lake, "s").identity


def test_a_link_to_a_catalog_is_the_same_lake(tmp_path: Path) -> None:
    (tmp_path / "real.db").touch()
    (tmp_path / "link.db").symlink_to(tmp_path / "real.db")
    one, other = (ResolvedLake(parse_catalog(f"sqlite:{name}", tmp_path)) for name in ("real.db", "link.db"))
    assert one.identity == other.identity


def test_a_lake_shows_no_secret_and_travels_between_processes() -> None:
    lake = ResolvedLake(
        parse_catalog("postgresql://u:hunter2@db/lake?sslpassword=hunter2", BASE),
        properties={"s3_secret_access_key": "hunter2"},
    )
    assert "hunter2" not in f"{lake} {lake!r} {lake.identity}"
    assert lake.has_password
    assert pickle.loads(pickle.dumps(lake)) == lake
    assert hash(pickle.loads(pickle.dumps(lake))) == hash(lake)


def test_only_a_lake_with_a_password_or_key_says_that_it_has_one() -> None:
    assert not _lake("dbname=lake user=u").has_password
    assert not ResolvedLake("sqlite:/a.db", properties={"s3_region": "x"}).has_password
    assert ResolvedLake("sqlite:/a.db", properties={"s3_session_token": "x"}).has_password


def test_a_sqlite_catalog_has_a_file_and_no_connection_words() -> None:
    lake = _lake("sqlite:a.db")
    assert lake.sqlite_file == Path("/folder/a.db")
    with pytest.raises(ValueError, match="no Postgres catalog"):
        _ = lake.conninfo


def test_variables_are_looked_up_and_relative_paths_are_relative_to_the_base() -> None:
    ref = LakeRef(
        catalog_env="LAKE",
        metadata_schema="s",
        data_path="data/",
        properties={"s3_region": "x", "s3_secret_access_key_env": "KEY"},
    )
    lake = resolve(ref, {"LAKE": "sqlite:a.db", "KEY": "k"}, BASE)
    assert lake == ResolvedLake(
        "sqlite:/folder/a.db", "s", "/folder/data/", {"s3_region": "x", "s3_secret_access_key": "k"}
    )


@pytest.mark.parametrize("path", ["s3://bucket/a", "gs://bkt", "/abs", "/abs/"])
def test_a_data_path_with_a_scheme_or_from_the_root_stays_as_it_is(path: str) -> None:
    assert resolve(LakeRef(catalog="sqlite:a.db", data_path=path), {}, BASE).data_path == path


@pytest.mark.parametrize(
    ("ref", "type"),
    [
        (LakeRef(catalog_env="LAKE"), "secret_missing"),
        (LakeRef(postgres_uri_env="EMPTY"), "secret_missing"),
        (LakeRef(catalog="sqlite:a.db", properties={"s3_session_token_env": "TOKEN"}), "secret_missing"),
        (LakeRef(catalog="sqlite:a.db", from_file=True), "secret_missing"),
        (LakeRef(), "invalid_destination"),
        (LakeRef(catalog="sqlite:a.db", catalog_env="LAKE"), "invalid_destination"),
        (LakeRef(catalog="duckdb:a.db"), "invalid_destination"),
        (LakeRef(catalog_env="BROKEN"), "invalid_destination"),
    ],
)
def test_a_lake_that_cannot_be_resolved_parks_its_destination_with_a_hint(ref: LakeRef, type: str) -> None:
    with pytest.raises(ViaduckError) as raised:
        resolve(ref, {"EMPTY": " ", "BROKEN": "postgresql://u:hunter2%@db"}, BASE)
    assert raised.value.type == type
    assert raised.value.hint
    assert "hunter2" not in raised.value.message


def test_postgres_itself_understands_a_password_full_of_quotes(postgres: Postgres) -> None:
    password = "p'w \\x&%ü=\"; @/:?#"
    with postgres.connect() as admin:
        admin.autocommit = True
        admin.execute(sql.SQL("CREATE ROLE tough LOGIN PASSWORD {}").format(sql.Literal(password)))
    uri = f"postgresql://tough:{quote(password, '')}@127.0.0.1:{postgres.port}/postgres"
    with psycopg.connect(ResolvedLake(parse_catalog(uri, BASE)).conninfo) as con:
        assert con.execute("SELECT current_user").fetchone() == ("tough",)


def _lake(catalog: str) -> ResolvedLake:
    return ResolvedLake(parse_catalog(catalog, BASE))
