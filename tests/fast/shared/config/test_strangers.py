"""What somebody else's lake may name, and that nothing of this machine's reaches the host that it names."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import psycopg
import pytest
from psycopg.pq import Conninfo

from shared.config.catalogs import ResolvedLake, connection_words, resolve
from shared.config.declared import Lakes, entry_lake
from shared.config.deployment import load_all
from shared.config.libpq_words import ANYBODYS, MOST_HOSTS, PINNED
from shared.config.loading import public_lake
from shared.config.model import Config
from shared.config.secrets import PASSWORD_WORDS
from shared.contracts.errors import ConfigError, ViaduckError
from shared.contracts.messages import DesiredState, Destination, LakeRef, SeedMode
from shared.lake.connection.attach import attach
from shared.lake.connection.engine import connect
from shared.lake.connection.query import Question
from shared.lake.connection.statements import Postgres
from tests.fast.shared.config.conftest import MINIMAL, Load
from tests.servers.eavesdropper import Eavesdropper
from tests.servers.s3 import S3

FILE = """
source: {catalog_env: SOURCE_CATALOG, table: events, properties: {s3_session_token_env: SOURCE_TOKEN}}
routing: {field: company, key_columns: [id]}
destinations:
  - {id: listed, routing_value: l, catalog: "postgres:host=db dbname=l passfile=/secrets/l", metadata_schema: l}
template:
  catalog: "postgres:host=db user=u dbname={routing_value} passfile=/secrets/t"
  data_path: "s3://tenants/{routing_value}/"
defaults:
  properties: {s3_endpoint: "store:9000", s3_access_key_id: own-id, s3_secret_access_key_env: DEFAULT_SECRET}
server: {token_env: CONTROL_TOKEN, allowed_variables: [%s]}
kafka: {bootstrap_servers: "k:1", properties: {sasl.password_env: BROKER_PASSWORD}}
registry: {url_env: REGISTRY_URL}
"""

OWN = {
    "SOURCE_CATALOG": "sqlite:/lakes/source.sqlite",
    "SOURCE_TOKEN": "s",
    "DEFAULT_SECRET": "s",
    "CONTROL_TOKEN": "s",
    "BROKER_PASSWORD": "s",
    "REGISTRY_URL": "sqlite:///r",
}
ENVIRON = {**OWN, "TENANT_A": "host=a dbname=a user=a password=a", "TENANT_KEY": "k", "VIADUCK_TOKEN": "s"}

CATALOG = "postgres:host=db.internal dbname=x user=u"


@pytest.fixture
def closed(load_text: Load) -> Config:
    """A deployment that lists no variable."""
    return load_text((FILE % "").replace("allowed_variables: []", "port: 1"), ENVIRON)


@pytest.fixture
def generous(load_text: Load) -> Config:
    """A deployment whose list lets through whatever may be."""
    return load_text(FILE % '"*"', ENVIRON)


def published(config: Config, lake: LakeRef, id: str = "theirs", value: str = "v") -> Destination:
    return Destination(
        pipeline=config.pipeline, destination=id, generation=1, routing_value=value, state=DesiredState.RUNNING,
        lake=lake, table="events", seed_mode=SeedMode.SCAN, revision="r", managed_by="file",
    )  # fmt: skip


def refused(config: Config, lake: LakeRef, **of: str) -> str:
    """Why a lake in a message is not opened."""
    with pytest.raises(ViaduckError) as caught:
        Lakes(config, ENVIRON).published(published(config, lake, **of))
    assert caught.value.type in ("not_allowed", "invalid_destination")
    assert caught.value.hint
    return f"{caught.value.type}: {caught.value.message}"


def test_a_variable_that_nobody_listed_is_not_looked_up(closed: Config) -> None:
    for name in (*ENVIRON, "NOT_SET"):
        for lake in (
            LakeRef(catalog_env=name),
            LakeRef(postgres_uri_env=name),
            LakeRef(catalog=CATALOG, properties={"s3_session_token_env": name}),
        ):
            said = refused(closed, lake)
            assert said.startswith("not_allowed")
            assert ENVIRON.get(name, "never") not in said.split()


ITS_OWN = sorted(set(OWN) - {"DEFAULT_SECRET"})
OTHERS = ["VIADUCK_TOKEN", "VIADUCK_ANYTHING", "PGPASSWORD", "PGPASSFILE", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"]


@pytest.mark.parametrize("name", [*ITS_OWN, *OTHERS])
def test_what_the_deployment_uses_itself_may_never_be_named_whatever_the_list_says(generous: Config, name: str) -> None:
    lake = LakeRef(catalog=CATALOG, properties={"s3_endpoint": "evil:9000", "s3_session_token_env": name})
    assert "variable of the deployment itself" in refused(generous, lake)


def test_a_variable_of_the_list_is_looked_up(generous: Config) -> None:
    lake = LakeRef(catalog_env="TENANT_A", properties={"s3_endpoint": "b:1", "s3_access_key_id_env": "TENANT_KEY"})
    found = Lakes(generous, ENVIRON).published(published(generous, lake))
    assert connection_words(found.catalog)["password"] == "a"
    assert (found.properties["s3_access_key_id"], found.untrusted) == ("k", True)


@pytest.mark.parametrize("key", ["s3_region", "s3_endpoint", "s3_use_ssl", "s3_url_style"])
def test_a_variable_may_hold_credentials_and_never_say_whom_to_ask(generous: Config, key: str) -> None:
    """A secret in the place of a region is part of the name that is asked for: whoever answers names knows it."""
    lake = LakeRef(catalog=CATALOG, properties={f"{key}_env": "TENANT_KEY"})
    assert f"properties.{key}_env: is no secret" in refused(generous, lake)


WORDS = sorted(each.keyword.decode() for each in Conninfo.get_defaults())
FORBIDDEN = [word for word in WORDS if word not in ANYBODYS]


def test_the_words_that_anybody_may_write_are_these() -> None:
    assert {"hostaddr", "passfile", "service", "options", "sslkey", "sslcert", "sslrootcert", "sslkeylogfile"} < set(
        FORBIDDEN
    )
    assert {"scram_client_key", "scram_server_key", "sslpassword", "oauth_client_secret"} < PASSWORD_WORDS


@pytest.mark.parametrize("word", FORBIDDEN)
def test_every_other_word_of_libpq_is_refused(generous: Config, word: str) -> None:
    said = refused(generous, LakeRef(catalog=f"{CATALOG} {word}=/tmp/secret-1"))
    assert "catalog" in said
    assert "secret-1" not in said


@pytest.mark.parametrize("catalog", [
    "postgres:dbname=x user=u", "postgres:host=/run/postgresql dbname=x user=u", "postgres:host=@abstract user=u",
    "postgres:host=a,/run dbname=x user=u", "postgresql://u@%2Frun/x", "postgres:host=db user=u sslmode=verify-ca",
    "postgres:host=db dbname=x", "postgres:host='evil.example/' user=u",
])  # fmt: skip
def test_a_host_is_a_name_and_no_socket_of_this_machine(generous: Config, catalog: str) -> None:
    assert "not_allowed: catalog" in refused(generous, LakeRef(catalog=catalog))


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("", 10), ("5", 5), ("30", 30), ("31", 30), ("1000000", 30), ("0", 10), ("-1", 10), ("x", 10)],
)
def test_a_strangers_server_is_not_waited_for_as_long_as_the_stranger_likes(given: str, seconds: int) -> None:
    words = f"{CATALOG} connect_timeout={given}" if given else CATALOG
    lake = resolve(LakeRef(catalog=words), {}, untrusted=True)
    assert connection_words(lake.conninfo)["connect_timeout"] == str(seconds)


def test_a_stranger_names_few_hosts_each_of_which_would_be_waited_for(generous: Config) -> None:
    many = ",".join(f"h{number}" for number in range(MOST_HOSTS))
    Lakes(generous, ENVIRON).published(published(generous, LakeRef(catalog=f"postgres:host={many} dbname=x user=u")))
    assert "more than" in refused(generous, LakeRef(catalog=f"postgres:host={many},last dbname=x user=u"))


PROPERTIES = [
    ("s3_region", "x@evil:9000/"), ("s3_region", "EU"), ("s3_region", "a.b"), ("s3_region", "x\n"), ("s3_region", ""),
    ("s3_endpoint", "http://evil"), ("s3_endpoint", "evil/x"), ("s3_endpoint", "a@evil:9000"), ("s3_endpoint", "e?x"),
    ("s3_endpoint", "evil#x"), ("s3_endpoint", "evil%2f"), ("s3_endpoint", "evil:0"), ("s3_endpoint", "evil:70000"),
    ("s3_endpoint", "evil:1:2"), ("s3_endpoint", "::1"), ("s3_endpoint", "a b"), ("s3_endpoint", "evil\r\nX: y"),
    ("s3_endpoint", "a..b"), ("s3_endpoint", "evil\n"), ("s3_use_ssl", "no"), ("s3_url_style", "both"),
]  # fmt: skip
PATHS = [
    "s3://x@evil:9000/", "s3://x?s3_endpoint=evil:9000", "s3://bucket/x?s3_endpoint=evil:9000&s3_use_ssl=false",
    "s3://bucket/x#y", "s3://bucket/a@b", "s3://Bucket/", "s3://b/", "s3:///x", "s3://bu..cket/x", "s3://bucket/../x",
    "s3://bucket/a/..", "https://evil/x", "http://evil", "azure://x/y", "file:///etc", "s3://bucket/\x07",
    f"s3://{'x' * 64}/", "s3://bu%2fcket/", "s3://bucket\n/", "/*{DATA_PATH}*/); SELECT 1; --",
]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), PROPERTIES)
def test_a_property_that_is_no_host_or_region_is_refused_in_file_and_message(
    generous: Config, load_text: Load, key: str, value: str
) -> None:
    assert f"properties.{key}" in refused(generous, LakeRef(catalog=CATALOG, properties={key: value}))
    if value.isprintable() and value:
        with pytest.raises(ConfigError) as caught:
            load_text(f"{MINIMAL}defaults: {{properties: {{{key}: '{value}'}}}}\n")
        (line,) = caught.value.mistakes
        assert line.startswith(f"defaults.properties.{key}: ")
        with pytest.raises(ConfigError) as caught:
            load_text(f"{MINIMAL}defaults: {{properties: {{{key}_env: X}}}}\n", {"X": value})
        (line,) = caught.value.mistakes
        assert line.startswith(f"defaults.properties.{key}_env: the variable's value ")
        assert value not in line


@pytest.mark.parametrize("path", PATHS)
def test_a_data_path_that_is_read_otherwise_is_refused_in_file_and_message(
    generous: Config, load_text: Load, path: str
) -> None:
    assert "data_path" in refused(generous, LakeRef(catalog=CATALOG, data_path=path))
    if path.isprintable():
        with pytest.raises(ConfigError) as caught:
            load_text(f"source: {{catalog: 'sqlite:a', table: t, data_path: '{path}'}}\nrouting: {{field: f}}\n")
        (line,) = caught.value.mistakes
        assert line.startswith("source.data_path: ")


@pytest.mark.parametrize("endpoint", ["minio", "minio:9000", "s3.eu-central-1.amazonaws.com", "[::1]:9000", "a_b:1"])
@pytest.mark.parametrize("path", ["s3://bucket", "s3://bucket/", "gs://my.bucket-1/a b/c=1/", "s3a://bucket/x"])
def test_what_stores_are_really_called_is_taken(endpoint: str, path: str) -> None:
    lake = LakeRef(catalog="sqlite:/a.db", data_path=path, properties={"s3_endpoint": endpoint})
    assert resolve(lake, {}).data_path == path


def hosts(load_text: Load, *allowed: str) -> Config:
    return load_text(FILE % '"*"' + "", ENVIRON).model_copy(
        update={"server": load_text(FILE % '"*"', ENVIRON).server.model_copy(update={"allowed_hosts": allowed})}
    )


@pytest.mark.parametrize(("data_path", "properties", "asked"), [
    ("s3://bucket/x", {}, "bucket.s3.us-east-1.amazonaws.com"),
    ("s3://bucket/x", {"s3_region": "eu-west-1"}, "bucket.s3.eu-west-1.amazonaws.com"),
    ("s3://bucket/x", {"s3_region": "eu-west-1", "s3_url_style": "path"}, "s3.eu-west-1.amazonaws.com"),
    ("s3://evil.example/x", {"s3_endpoint": "minio"}, "evil.example.minio"),
    ("s3://bucket/x", {"s3_endpoint": "Minio:9000", "s3_url_style": "path"}, "minio"),
    ("s3://bucket/x", {"s3_endpoint": "[::1]:9000", "s3_url_style": "path"}, "::1"),
    (None, {"s3_endpoint": "minio:9000"}, "minio"),
])  # fmt: skip
def test_the_host_that_is_really_asked_is_the_one_that_is_looked_for_on_the_list(
    load_text: Load, data_path: str | None, properties: dict[str, str], asked: str
) -> None:
    lake = LakeRef(catalog="sqlite:/x.sqlite", data_path=data_path, properties=properties)
    assert Lakes(hosts(load_text, asked), ENVIRON).published(published(hosts(load_text, asked), lake)).untrusted
    assert f"{asked} is not among the hosts" in refused(hosts(load_text, "other", f"x{asked}"), lake)


# -- whose it is ------------------------------------------------------------------------------------------------------


def test_what_the_file_lists_is_the_files_and_only_as_it_is_there(generous: Config) -> None:
    lakes, lake = Lakes(generous, ENVIRON), public_lake(generous.destinations[0])
    found = lakes.published(published(generous, lake, "listed"))
    assert (found.untrusted, "passfile=/secrets/l" in found.conninfo) == (False, True)
    assert "passfile" in refused(generous, lake.model_copy(update={"from_file": False}), id="another")
    assert "host" in refused(
        generous, lake.model_copy(update={"catalog": f"{CATALOG} hostaddr=10.0.0.1", "from_file": False}), id="listed"
    )


def test_what_the_files_template_makes_is_the_files_and_only_for_its_own_routing_value(generous: Config) -> None:
    def made(name: str) -> LakeRef:
        catalog, path = f"host=db user=u dbname={name} passfile=/secrets/t", f"s3://tenants/{name}/"
        return entry_lake({"catalog": catalog, "data_path": path}, generous)

    found = Lakes(generous, ENVIRON).published(published(generous, made("acme"), "acme", "acme"))
    assert (found.untrusted, connection_words(found.catalog)["passfile"]) == (False, "/secrets/t")
    assert "passfile" in refused(generous, made("registry"), id="acme", value="acme")
    assert "passfile" in refused(generous, made("acme"), id="other", value="acme")
    evil = "x host=evil.example"
    assert "passfile" in refused(generous, made(evil), id=evil.replace(" ", "-").replace("=", "-"), value=evil)


def test_keys_of_defaults_go_to_the_store_of_defaults_alone(generous: Config) -> None:
    inherited = entry_lake({"catalog": CATALOG, "properties": {}}, generous)
    found = Lakes(generous, ENVIRON).published(published(generous, inherited))
    assert (found.properties["s3_access_key_id"], found.properties["s3_secret_access_key"]) == ("own-id", "s")
    for own in ({"s3_endpoint": "evil:9000"}, {"s3_use_ssl": "false"}):
        lake = entry_lake({"catalog": CATALOG, "properties": own}, generous)
        assert "whose keys are for it alone" in refused(generous, lake)
        forged = inherited.model_copy(update={"properties": {**inherited.properties, **own}, "from_defaults": False})
        assert "whose keys are for it alone" in refused(generous, forged)
        renamed = {"s3_access_key_id_env": "DEFAULT_SECRET", **own}
        said = refused(generous, LakeRef(catalog=CATALOG, properties=renamed))
        assert "DEFAULT_SECRET is a variable of the deployment itself" in said
    keys = {"s3_access_key_id_env": "TENANT_KEY", "s3_secret_access_key_env": "TENANT_KEY"}
    lake = entry_lake({"catalog": CATALOG, "properties": {"s3_endpoint": "other:9000", **keys}}, generous)
    found = Lakes(generous, ENVIRON).published(published(generous, lake))
    assert (found.properties["s3_access_key_id"], found.properties["s3_secret_access_key"]) == ("k", "k")


def test_a_template_that_no_list_lets_through_is_a_mistake_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "viaduck.yaml"
    text = FILE.replace('catalog: "postgres:host=db user=u dbname={routing_value} passfile=/secrets/t"',
                        'catalog_env: TENANTS\n  metadata_schema: "t_{routing_value}"')  # fmt: skip
    file.write_text(text % "X")
    with pytest.raises(ConfigError) as caught:
        load_all([file], {**ENVIRON, "TENANTS": CATALOG})
    (line,) = caught.value.mistakes
    assert line.startswith("template.catalog_env: TENANTS is not among the variables that may be named")
    file.write_text(text % "TENANTS")
    assert load_all([file], {**ENVIRON, "TENANTS": CATALOG}).common.template.is_given


# -- what arrives at a host that a stranger named ---------------------------------------------------------------------


@pytest.fixture
def surrounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Eavesdropper]:
    """A process with a password in every place where libpq looks for one, and a host that asks for it."""
    with Eavesdropper() as host:
        (tmp_path / ".pgpass").write_text("*:*:*:*:ambient-from-home\n")
        (tmp_path / "passfile").write_text("*:*:*:*:ambient-from-file\n")
        for each in (tmp_path / ".pgpass", tmp_path / "passfile"):
            each.chmod(0o600)
        ambient = {
            "HOME": str(tmp_path), "PGPASSWORD": "ambient-password", "PGPASSFILE": str(tmp_path / "passfile"),
            "PGUSER": "ambient-user", "PGDATABASE": "ambient-database", "PGOPTIONS": "-c x.y=ambient-option",
            "PGAPPNAME": "ambient-name", "PGHOST": "192.0.2.1", "PGPORT": "1", "PGCLIENTENCODING": "LATIN1",
            "AWS_ACCESS_KEY_ID": "ambient-id", "AWS_SECRET_ACCESS_KEY": "ambient-secret",
            "AWS_SESSION_TOKEN": "ambient-token", "AWS_REGION": "ambient-region",
        }  # fmt: skip
        for name, value in ambient.items():
            monkeypatch.setenv(name, value)
        yield host


def ask(lake: ResolvedLake) -> None:
    """Ask as control does, and as an applier does; neither can get in."""
    with closing(Postgres(lake.conninfo)) as catalog, pytest.raises(psycopg.OperationalError):
        catalog.rows(Question("SELECT 1"))
    with closing(connect()) as con, pytest.raises(ViaduckError):
        attach(con, "lake", lake, read_only=True)


@pytest.mark.timeout(60)
def test_no_password_of_this_machine_arrives_at_a_host_that_a_message_names(
    generous: Config, surrounded: Eavesdropper
) -> None:
    lake = LakeRef(catalog=f"postgres:host=127.0.0.1 port={surrounded.port} dbname=x user=u")
    ask(Lakes(generous, ENVIRON).published(published(generous, lake)))
    assert surrounded.connections >= 2
    assert b"user\x00u\x00" in surrounded.heard
    assert b"ambient" not in surrounded.heard


@pytest.mark.timeout(60)
def test_a_lake_of_the_file_has_the_password_of_its_surroundings(surrounded: Eavesdropper) -> None:
    """The same words, in a file of the operator's: what the test above sees is not a host that hears nothing."""
    ask(resolve(LakeRef(catalog=f"postgres:host=127.0.0.1 port={surrounded.port} dbname=x user=u"), {}))
    assert surrounded.heard.count(b"ambient-password") >= 2


@pytest.mark.parametrize("word", sorted({each.envvar.decode(): 0 for each in Conninfo.get_defaults() if each.envvar}))
def test_every_variable_that_libpq_looks_at_has_a_word_against_it(word: str) -> None:
    by_variable = {each.envvar.decode(): each.keyword.decode() for each in Conninfo.get_defaults() if each.envvar}
    assert by_variable[word] in {*PINNED, "host", "service"}


def test_a_service_that_is_set_here_is_no_strangers(generous: Config) -> None:
    lakes = Lakes(generous, {**ENVIRON, "PGSERVICE": "ours"})
    with pytest.raises(ViaduckError, match="PGSERVICE is set here") as caught:
        lakes.published(published(generous, LakeRef(catalog=CATALOG)))
    assert caught.value.type == "not_allowed"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("keys", [{}, {"s3_access_key_id": "theirs", "s3_secret_access_key": "theirs"}])
def test_no_key_of_this_machine_arrives_at_a_store_that_a_stranger_named(
    surrounded: Eavesdropper, tmp_path: Path, keys: dict[str, str]
) -> None:
    store = {"s3_endpoint": f"127.0.0.1:{surrounded.port}", "s3_use_ssl": "false", "s3_url_style": "path", **keys}
    lake = ResolvedLake(f"sqlite:{tmp_path}/x.sqlite", None, "s3://bucket/x/", store, untrusted=True)
    queries = "SELECT * FROM read_parquet('s3://bucket/x/f.parquet')", "SELECT * FROM read_text('s3://b/f')"
    with closing(connect()) as con:
        attach(con, "lake", lake, read_only=False, create=True)
        for asked, query in itertools.product((con, con.cursor()), queries):
            with pytest.raises(duckdb.Error):
                asked.execute(query)
    assert b"/bucket/x/f.parquet" in surrounded.heard
    assert b"ambient" not in surrounded.heard
    assert (b"Authorization" in surrounded.heard) == bool(keys)


def test_a_data_path_that_a_strangers_own_catalog_turns_to_another_host_is_refused(tmp_path: Path) -> None:
    with closing(connect()) as con:
        lake = ResolvedLake(f"sqlite:{tmp_path}/x.sqlite", None, "s3://bucket/x/", untrusted=True)
        attach(con, "lake", lake, read_only=False, create=True)
    with closing(connect()) as con:
        con.execute(f"ATTACH '{tmp_path}/x.sqlite' AS c (TYPE sqlite)")
        con.execute("UPDATE c.ducklake_metadata SET value = 's3://x@evil:9000/' WHERE key = 'data_path'")
    lake = ResolvedLake(f"sqlite:{tmp_path}/x.sqlite", untrusted=True)
    with closing(connect()) as con, pytest.raises(ViaduckError) as caught:
        attach(con, "lake", lake, read_only=True)
    assert caught.value.type == "invalid_destination"
    assert "has no bucket" in caught.value.message


def test_a_lake_of_the_file_without_keys_has_those_of_its_surroundings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, s3: S3
) -> None:
    s3.create_bucket("surroundings")
    for name, value in {"AWS_ACCESS_KEY_ID": s3.admin.id, "AWS_SECRET_ACCESS_KEY": s3.admin.secret}.items():
        monkeypatch.setenv(name, value)
    store = {"s3_endpoint": f"127.0.0.1:{s3.port}", "s3_use_ssl": "false", "s3_url_style": "path"}
    own = ResolvedLake(f"sqlite:{tmp_path}/own.sqlite", None, "s3://surroundings/own/", store)
    theirs = ResolvedLake(f"sqlite:{tmp_path}/theirs.sqlite", None, "s3://surroundings/theirs/", store, untrusted=True)
    with closing(connect()) as con:
        for alias, lake in (("own", own), ("theirs", theirs)):
            attach(con, alias, lake, read_only=False, create=True)
        rows = "SELECT range AS i FROM range(1000)"
        con.execute(f"CREATE TABLE own.t AS {rows}")
        with pytest.raises(duckdb.Error, match="403"):
            con.execute(f"CREATE TABLE theirs.t AS {rows}")


def test_an_instance_holds_no_key_that_no_lake_gave_it(surrounded: Eavesdropper) -> None:
    """A release of httpfs that looks at more of its surroundings must be seen here."""
    assert surrounded.port
    with closing(connect()) as con:
        for asked in (con, con.cursor()):
            found = asked.execute("SELECT name, value FROM duckdb_settings() WHERE name LIKE 's3_%'").fetchall()
            assert len(found) >= 15
            assert not [name for name, value in found if "ambient" in str(value)]
