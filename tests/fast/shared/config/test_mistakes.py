"""Every mistake of a file has one line: where it is, what is wrong, what to write instead."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shared.config.loading import load
from shared.contracts.errors import ConfigError
from tests.fast.shared.config.conftest import MINIMAL, Load, Mistaken

DESTINATIONS = """\
source: {catalog: "sqlite:source.sqlite", table: events}
routing: {field: company}
destinations:
"""

ONE = '  - {id: a, routing_value: a, catalog: "sqlite:a.db"%s}\n'


@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        ("a: [1", "", "line 2, column 1: is not YAML"),
        ("a: b: c", "", "line 1, column 5: is not YAML"),
        ("\tsource: x", "", "line 1, column 1: is not YAML"),
        ("a: 'b", "", "is not YAML"),
        ("a: *nowhere", "", "is not YAML: found undefined alias"),
        ("a: \x01", "", "is not YAML: it has a character that YAML does not allow"),
        ("a: 1\n---\nb: 2\n", "", "is not YAML: expected a single document"),
        ("[" * 50_000, "", "nested more than 32 deep"),
        ("{a: " * 50_000, "", "nested more than 32 deep"),
        ("", "", "the file is empty"),
        ("# only a comment\n", "", "the file is empty"),
        ("- a\n- b\n", "", "must be a mapping of sections"),
        ("just text", "", "must be a mapping of sections"),
        ("null", "", "must be a mapping of sections"),
    ],
)
def test_a_file_that_is_no_mapping_of_sections_has_one_mistake(
    mistakes_of: Mistaken, tmp_path: Path, text: str, where: str, said: str
) -> None:
    (line,) = mistakes_of(text)
    assert line.startswith(f"{tmp_path / 'viaduck.yaml'}: {where}")
    assert said in line


def test_a_file_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"source:\n  table: caf\xe9\n")
    (tmp_path / "wide.yaml").write_bytes("source: x".encode("utf-16"))
    os.mkfifo(tmp_path / "pipe.yaml")
    cases = {
        "missing.yaml": "there is no such file",
        "": "is a folder; name the file in it, such as",
        "latin.yaml": "line 2: is not UTF-8",
        "wide.yaml": "line 1: is not UTF-8",
        "latin.yaml/x.yaml": "can't be read: Not a directory",
        "x" * 300: "can't be read: File name too long",
        "nul\0": "can't be read: not a path",
    }
    for name, said in cases.items():
        with pytest.raises(ConfigError) as raised:
            load(tmp_path / name, {})
        assert said in str(raised.value)
        assert str(raised.value).startswith(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "path", "said"),
    [
        # keys
        ("pipline: x\n", "pipline", "did you mean pipeline?"),
        ("Pipeline: x\n", "Pipeline", "did you mean pipeline?"),
        ("field: x\n", "field", "move it to routing"),
        ("nonsense: x\n", "nonsense", "remove it, or write one of: pipeline, source"),
        ("path: x\n", "path", "is not a key"),
        ("1: x\n", "1", "is not a key"),
        ('"a\\nb": x\n', r'"a\nb"', "is not a key"),
        ("? [a]\n: x\n", "the file", "has a list or mapping for a key"),
        ("poll: {interval: 5}\n", "poll.interval", "did you mean interval_seconds?"),
        ("server: {porrt: 5}\n", "server.porrt", "did you mean port?"),
        ("web: {token_env: X}\n", "web.token_env", "move it to server"),
        ("instance: {partition: {modes: all}}\n", "instance.partition.modes", "did you mean mode?"),
        ("poll: {}\npoll: {}\n", "poll", "is given twice, on lines 3 and 4"),
        ("defaults: {properties: {s3_region: a, s3_region: b}}\n", "defaults.properties.s3_region", "is given twice"),
        ("poll: &p {x: *p}\n", "poll.x", "is an alias of what it stands in"),
        ("kafka: {properties: &p {x: *p}}\n", "kafka.properties.x", "an alias of what it stands in"),
        ("poll: {<<: 5}\n", "poll", "merges something that is no mapping"),
        # types
        ("poll: 5\n", "poll", "must be a mapping; write its keys (interval_seconds …)"),
        ("poll: [5]\n", "poll", "must be a mapping"),
        ("destinations: {a: b}\n", "destinations", "must be a list"),
        ("destinations: x\n", "destinations", "must be a list"),
        ("destinations: [x]\n", "destinations[0]", "must be a mapping"),
        ("destinations:\n  -\n", "destinations[0]", "has nothing behind its dash"),
        ("server: {port: x}\n", "server.port", "must be a whole number"),
        ("server: {port: true}\n", "server.port", "must be a whole number"),
        ("server: {port: 1.5}\n", "server.port", "must be a whole number"),
        ("server: {port: 0x50}\n", "server.port", "in decimal digits"),
        ("server: {port: 010}\n", "server.port", "in decimal digits"),
        ("server: {port: 1:20}\n", "server.port", "in decimal digits"),
        (f"server: {{port: {'9' * 5000}}}\n", "server.port", "must be a whole number"),
        ("server: {port: 65536}\n", "server.port", "must be 65535 or less"),
        ("server: {port: -1}\n", "server.port", "must be 0 or more"),
        ("server: {port: [1]}\n", "server.port", "is a list; write a single value"),
        ("server: {host: {a: b}}\n", "server.host", "is a mapping; write a single value"),
        ("poll: {interval_seconds: 0.01}\n", "poll.interval_seconds", "must be 0.05 or more"),
        ("poll: {interval_seconds: -5}\n", "poll.interval_seconds", "must be 0.05 or more"),
        ("poll: {interval_seconds: .nan}\n", "poll.interval_seconds", "must be a number"),
        ("poll: {interval_seconds: .inf}\n", "poll.interval_seconds", "must be a number"),
        ("poll: {interval_seconds: soon}\n", "poll.interval_seconds", "must be a number"),
        ("poll: {interval_seconds: 2024-01-01}\n", "poll.interval_seconds", "must be a number"),
        ("reader: {advance_after_seconds: 0}\n", "reader.advance_after_seconds", "must be greater than 0.0"),
        ("web: {enabled: maybe}\n", "web.enabled", "must be true or false"),
        ("web: {enabled: 1}\n", "web.enabled", "must be true or false"),
        ("kafka: {properties: [a]}\n", "kafka.properties", "must be a mapping"),
        ("kafka: {properties: {a: null}}\n", "kafka.properties.a", "has no value"),
        ("kafka: {properties: {a: [b]}}\n", "kafka.properties.a", "has no value that is text"),
        ("state_dir: !path x\n", "state_dir", 'has the tag "!path", which means nothing here'),
        ("state_dir: !!python/name:os.system x\n", "state_dir", "which means nothing here"),
        ('state_dir: "a\\0b"\n', "state_dir", "holds a null character"),
        ('kafka: {properties: {"a\\0b": x}}\n', r'kafka.properties."a\u0000b"', "holds a null character"),
        # null and nothing
        ("state_dir:\n", "state_dir", "has no value; write one, or leave the key out"),
        ("state_dir: ''\n", "state_dir", "is empty"),
        ("pipeline: ~\n", "pipeline", "has no value; write one, or leave the key out"),
        ("server: {token_env: }\n", "server.token_env", "has no value"),
        # values
        ("pipeline: a b\n", "pipeline", "must be 1 to 200 letters, digits and . _ : @ + - only"),
        ("pipeline: -a\n", "pipeline", "the first a letter or digit"),
        (f"pipeline: {'x' * 201}\n", "pipeline", "must be 1 to 200 letters"),
        ("pipeline: on\n", "pipeline", "is read as a boolean by YAML"),
        ("instance: {id: a/b}\n", "instance.id", "holds a slash"),
        ("instance: {partition: {mode: half}}\n", "instance.partition.mode", "'all', 'explicit', 'hash'"),
        ("instance: {partition: {mode: explicit}}\n", "instance.partition.include", "list the ids"),
        ("instance: {partition: {mode: explicit, include: []}}\n", "instance.partition.include", "list the ids"),
        ("instance: {partition: {mode: explicit, include: a}}\n", "instance.partition.include", "must be a list"),
        ("instance: {partition: {mode: hash, total: 2, ordinal: 2}}\n", "instance.partition.ordinal", "write 0 to 1"),
        ("instance: {partition: {mode: hash, ordinal: 1}}\n", "instance.partition.ordinal", "write 0 to 0"),
        ("instance: {partition: {mode: hash, total: 0}}\n", "instance.partition.total", "must be 1 or more"),
        ("instance: {partition: {mode: hash, total: 2, ordinal: -1}}\n", "instance.partition.ordinal", "0 or more"),
        ("kafka: {topic_prefix: a b}\n", "kafka.topic_prefix", "must be 1 to 200 letters"),
        ("kafka: {partitions: 0}\n", "kafka.partitions", "must be 1 or more"),
        ("kafka: {properties: {sasl.password_env: P}}\n", "kafka.properties.sasl.password_env", "P is not set"),
        ("registry: {url: 'mysql://u:hunter2@h/d'}\n", "registry.url", "must be a database URL"),
        ("registry: {url: registry.db}\n", "registry.url", "must be a database URL"),
        ("registry: {url_env: REGISTRY}\n", "registry.url_env", "REGISTRY is not set"),
        ("registry: {url: 'sqlite:///a', url_env: EMPTY}\n", "registry.url_env", "is given beside url"),
        ("registry: {url_env: HOME}\n", "registry.url_env", "must be a database URL"),
        ("server: {token_env: EMPTY}\n", "server.token_env", "EMPTY is empty"),
        ("applier: {memory_limit: much}\n", "applier.memory_limit", "write it like 512MB"),
        ("applier: {memory_limit: 512}\n", "applier.memory_limit", "write it like 512MB"),
        # properties
        ("defaults: {properties: {s3_regin: x}}\n", "defaults.properties.s3_regin", "did you mean s3_region?"),
        ("defaults: {properties: {s3_regin_env: EMPTY}}\n", "defaults.properties.s3_regin_env", "is empty"),
        ("defaults: {properties: {x: y}}\n", "defaults.properties.x", "write one of: s3_access_key_id"),
        ("defaults: {properties: {s3_use_ssl: maybe}}\n", "defaults.properties.s3_use_ssl", "true, false"),
        ("defaults: {properties: {s3_url_style: virtual}}\n", "defaults.properties.s3_url_style", "path, vhost"),
        ("defaults: {properties: {s3_region_env: R}}\n", "defaults.properties.s3_region_env", "R is not set"),
        (
            "defaults: {properties: {s3_region: r, s3_region_env: HOME}}\n",
            "defaults.properties.s3_region_env",
            "beside",
        ),
    ],
)
def test_a_mistake_outside_source_routing_and_destinations(
    mistakes_of: Mistaken, text: str, path: str, said: str
) -> None:
    (line,) = mistakes_of(MINIMAL + text, {"EMPTY": "", "HOME": "x"})
    assert line.startswith(f"{path}: ")
    assert said in line


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("destinations: []", ["source: is missing", "routing: is missing"]),
        ("source:\nrouting:\n", ["source: is required and has no value", "routing: is required and has no value"]),
        (
            "source: {}\nrouting: {}\n",
            ["source.catalog: is missing", "source.table: is missing", "routing.field: is missing"],
        ),
        ("sorce: {}\nrouting: {field: a}\n", ["sorce: is not a key; did you mean source?"]),
        (
            "source: {catalog: 'sqlite:a', tabel: x}\nrouting: {field: a}\n",
            ["source.tabel: is not a key; did you mean table?"],
        ),
        (
            "source: {catlog: 'sqlite:a', table: x}\nrouting: {field: a}\n",
            ["source.catlog: is not a key; did you mean catalog?"],
        ),
        (
            "source: {catalog: 'sqlite:a', table: ' ', schema: '', key_columns: [x]}\nrouting: {field: a}\n",
            [
                "source.table: is empty",
                "source.schema: is empty",
                "source.key_columns: is not a key here; move it to routing",
            ],
        ),
        (
            "source: {catalog: 'sqlite:a', catalog_env: HOME, table: a}\nrouting: {field: a}\n",
            ["source.catalog_env: is given beside catalog; keep one of them"],
        ),
        (
            "source: {catalog: 'duckdb:a', table: a}\nrouting: {field: a}\n",
            ["source.catalog: can't be used: it is a DuckDB file"],
        ),
        (
            "source: {catalog_env: HOME, table: a}\nrouting: {field: a}\n",
            ["source.catalog_env: the variable's value can't be used: it is a DuckDB file"],
        ),
        (
            "source: {postgres_uri_env: NOT_THERE, table: a}\nrouting: {field: a}\n",
            ["source.postgres_uri_env: the environment variable NOT_THERE is not set"],
        ),
        (
            "source: {postgres_uri_env: 'postgresql://u:hunter2@h/d', table: a}\nrouting: {field: a}\n",
            ["source.postgres_uri_env: must be the name of an environment variable, not a value"],
        ),
        (
            "source: {catalog: 'sqlite:a', table: a, properties: {s3_access_key_id_env: AKIAIOSFODNN7HUNTER2}}\n"
            "routing: {field: a}\n",
            ["source.properties.s3_access_key_id_env: the environment variable (not shown: it looks like a value)"],
        ),
        (
            "source: {catalog: 'sqlite:a', table: a, data_path: 's3://bkt?s3_secret_access_key=hunter2'}\n"
            "routing: {field: a}\n",
            ["source.data_path: holds a password or key; write it under properties instead"],
        ),
        (
            "source: {catalog: 'sqlite:a', table: a}\n"
            "routing: {field: NO, key_columns: [a, B, b, null, ''], seed_mode: full, on_gap: skip}\n",
            [
                "routing.field: is read as a boolean by YAML; put it in quotes",
                'routing.key_columns[2]: "b" is a key column already',
                "routing.key_columns[3]: has no value",
                "routing.key_columns[4]: is empty",
                "routing.seed_mode: must be one of: 'scan', 'cdc_replay', 'latest'",
                "routing.on_gap: must be one of: 'park', 'reseed'",
            ],
        ),
        (
            "source: {catalog: 'sqlite:a', table: a}\nrouting: {field: a, key_columns: event_id}\n",
            ["routing.key_columns: must be a list; write it in brackets"],
        ),
        (
            "source: {catalog: 'sqlite:a', table: a}\nrouting: {field: a, key_columns: null}\n",
            ["routing.key_columns: must be a list"],
        ),
    ],
)
def test_mistakes_of_source_and_routing(mistakes_of: Mistaken, text: str, lines: list[str]) -> None:
    _check(mistakes_of(text, {"HOME": "/home"}), lines)


@pytest.mark.parametrize(
    ("entries", "lines"),
    [
        ("  - {}\n", ["[0].catalog: is missing", "[0].id: is missing", "[0].routing_value: is missing"]),
        (
            "  - {id: a b, routing_value: [x], catalog: 5, table: null}\n",
            [
                "[0].id: must be 1 to 200 letters",
                "[0].routing_value: is a list",
                "[0].catalog: can't be used",
                "[0].table: has no value",
            ],
        ),
        ("  - {id: '', routing_value: a, catalog: 'sqlite:a'}\n", ["[0].id: is empty"]),
        (
            "  - {id: a, routing_value: null, catalog: 'sqlite:a'}\n",
            ["[0].routing_value: is required and has no value"],
        ),
        ("  - {id: a, routing_value: .nan, catalog: 'sqlite:a'}\n", ["[0].routing_value: is no plain decimal number"]),
        ("  - {id: a, routing_value: -.inf, catalog: 'sqlite:a'}\n", ["[0].routing_value: is no plain decimal number"]),
        ("  - {id: a, routing_value: NO, catalog: 'sqlite:a'}\n", ["[0].routing_value: is read as a boolean"]),
        ("  - {id: a, routing_value: 007, catalog: 'sqlite:a'}\n", ["[0].routing_value: is read as another number"]),
        ("  - {id: a, routing_value: 12:30, catalog: 'sqlite:a'}\n", ["[0].routing_value: is read as another number"]),
        ("  - {id: a, routing_value: {b: c}, catalog: 'sqlite:a'}\n", ["[0].routing_value: is a mapping"]),
        (
            ONE % "" + "  - {id: a, routing_value: a, catalog: 'sqlite:./a.db', table: EVENTS}\n",
            [
                '[1].id: "a" is that of destinations[0] too; ids must differ',
                '[1].routing_value: "a" is that of destinations[0] too',
                "[1].table: lake and table is that of destinations[0] too",
            ],
        ),
        (
            "  - {id: a, routing_value: 7, catalog_env: ONE}\n  - {id: b, routing_value: '7', postgres_uri_env: TWO}\n",
            ['[1].routing_value: "7" is that of destinations[0] too', "[1].table: lake and table is that of"],
        ),
        (
            "  - {id: a, routing_value: a, catalog: 'sqlite:source.sqlite', schema: MAIN}\n",
            ["[0].table: is the source's own table; choose another catalog, schema or table"],
        ),
        (
            "  - nonsense\n" + ONE % "" + "  - null\n" + ONE % "",
            [
                "[0]: must be a mapping",
                "[2]: has nothing behind its dash",
                "[3].id: ",
                "[3].routing_value: ",
                "[3].table",
            ],
        ),
        (ONE % ", id: b", ["[0].id: is given twice, on lines 4 and 4"]),
        (ONE % ", routing-value: b", ["[0].routing-value: is not a key; did you mean routing_value?"]),
        (ONE % ", seed_mode: all", ["[0].seed_mode: must be one of: 'scan', 'cdc_replay', 'latest'"]),
        (ONE % ", properties: {s3_session_token_env: T}", ["[0].properties.s3_session_token_env: "]),
        (ONE % ", data_path: 's3://u:hunter2@b/c'", ["[0].data_path: holds a password or key"]),
        *(
            (ONE % f", {key}: '/*{{DATA_PATH}}*/'", [f"[0].{key}: holds the word DATA_PATH in braces"])
            for key in ("data_path", "metadata_schema", "schema", "table")
        ),
        (
            "  - {id: a, routing_value: a, catalog: 'sqlite:{METADATA_PATH}'}\n",
            ["[0].catalog: can't be used: it holds the word METADATA_PATH in braces"],
        ),
    ],
)
def test_mistakes_of_destinations(mistakes_of: Mistaken, entries: str, lines: list[str]) -> None:
    environ = {"ONE": "postgresql://u:hunter2@DB/lake", "TWO": "dbname=lake host=db port=5432 password=hunter3"}
    _check(mistakes_of(DESTINATIONS + entries, environ), [f"destinations{line}" for line in lines])


def test_mistakes_stand_in_the_order_of_the_file(mistakes_of: Mistaken) -> None:
    text = "poll: {interval_seconds: 0}\nsource: {table: a}\nserver: {port: x}\nrouting: {}\nweb: 5\n"
    paths = [line.split(":")[0] for line in mistakes_of(text)]
    assert paths == ["poll.interval_seconds", "source.catalog", "server.port", "routing.field", "web"]


def test_one_mistake_hides_no_other(mistakes_of: Mistaken) -> None:
    entries = ONE % ", tabel: x" + "  - {id: 'a ', routing_value: a, catalog_env: LAKE, properties: {s3: x}}\n"
    lines = mistakes_of(DESTINATIONS.replace("field", "feild") + entries)
    assert [line.split(": ")[0] for line in lines] == [
        "routing.feild",
        "destinations[0].tabel",
        "destinations[1].id",
        "destinations[1].routing_value",
        "destinations[1].catalog_env",
        "destinations[1].properties.s3",
    ]


def test_a_file_that_repeats_itself_without_end_is_not_unrolled(mistakes_of: Mistaken) -> None:
    laughs = "".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]\n" for n in range(1, 30))
    lines = mistakes_of(MINIMAL + "x0: &x0 [a]\n" + laughs)
    assert len(lines) == 30


def test_thousands_of_destinations_are_checked_against_each_other(load_text: Load, mistakes_of: Mistaken) -> None:
    entries = "".join(f'  - {{id: d{n}, routing_value: {n}, catalog: "sqlite:{n}.db"}}\n' for n in range(2000))
    assert len(load_text(DESTINATIONS + entries).destinations) == 2000
    _check(
        mistakes_of(DESTINATIONS + entries + '  - {id: d7, routing_value: 2000, catalog: "sqlite:x.db"}\n'),
        ['destinations[2000].id: "d7" is that of destinations[7] too'],
    )


def _check(found: tuple[str, ...], expected: list[str]) -> None:
    assert len(found) == len(expected), found
    unmatched = [line for line in expected if not any(mistake.startswith(line) for mistake in found)]
    assert not unmatched, found
    assert "hunter" not in " ".join(found).lower()


TEMPLATE = """\
source: {catalog: "sqlite:source.sqlite", table: events}
routing: {field: company}
template: {%s}
"""
GOOD = 'catalog: "sqlite:{routing_value}.sqlite", data_path: "d/{routing_value}"'
POSTGRES = 'catalog: "dbname=lakes host=h"'


@pytest.mark.parametrize(
    ("template", "path", "said"),
    [
        ('id: "{routing_value}"', "template.catalog", "is missing"),
        (f'{GOOD}, id: "tenant"', "template.id", "is the same for every routing value"),
        (f'{GOOD}, id: "-{{routing_value}}"', "template.id", "must be letters, digits"),
        (f'{GOOD}, id: "{"x" * 138}{{routing_value}}"', "template.id", "137 of them at most"),
        (f'{GOOD}, id: "{{routing_value}}{{region}}"', "template.id", "holds a brace that is not of {routing_value}"),
        (f'{GOOD}, table: "{{value}}"', "template.table", "holds a brace"),
        (f'{GOOD}, properties: {{s3_region: "{{x"}}', "template.properties.s3_region", "holds a brace"),
        ('catalog_env: "LAKE_{routing_value}"', "template.catalog_env", "names a variable, and has no {routing_value}"),
        (f'{GOOD}, properties: {{s3_access_key_id_env: "K_{{routing_value}}"}}',
         "template.properties.s3_access_key_id_env", "names a variable"),
        (f'{GOOD}, properties: {{s3_secret_access_key: "hunter2"}}', "template.properties.s3_secret_access_key",
         "write s3_secret_access_key_env"),
        ('catalog: "postgresql://u:hunter2@h/{routing_value}", data_path: "d/{routing_value}"', "template.catalog",
         "holds a password"),
        ('catalog: "sqlite:all.sqlite"', "template.catalog", "leads every routing value to one table"),
        ('catalog: "sqlite:all.sqlite", metadata_schema: "{routing_value}"', "template.catalog", "the catalog, schema"),
        ("catalog_env: LAKE", "template.catalog_env", "in metadata_schema, schema or table"),
        (f'{POSTGRES}, metadata_schema: "{{routing_value}}"', "template.data_path", "is missing"),
        ('catalog: "sqlite:{routing_value}.sqlite"', "template.data_path", "is missing"),
        (f'{POSTGRES}, metadata_schema: "{{routing_value}}", data_path: "s3://bkt/d"', "template.data_path",
         "is the same for every routing value"),
        (f'{POSTGRES}, table: "{{routing_value}}", data_path: "s3://bkt/{{routing_value}}"', "template.data_path",
         "the lake is one for all"),
        (f'{GOOD}, properties: {{s3_endpoint: "minio-{{routing_value}}"}}', "template.properties.s3_endpoint",
         "choose a host"),
        ('catalog: "host=db-{routing_value} dbname=lakes", data_path: "d/{routing_value}"', "template.catalog",
         "choose host; write"),
        ('catalog: "postgresql://{routing_value}@h/t_{routing_value}", data_path: "d/{routing_value}"',
         "template.catalog", "choose user; write"),
        (f"{GOOD}, create_database: true", "template.create_database", "is for catalogs on Postgres"),
        (f"{GOOD}, create_database: perhaps", "template.create_database", "must be true or false"),
        ('catalog: "lakes/{routing_value}.duckdb"', "template.catalog", "it is a DuckDB file"),
        ("catalog_env: NOWHERE", "template.catalog_env", "is not set"),
        (f"{GOOD}, routing_value: a", "template.routing_value", "is not a key"),
    ],
)  # fmt: skip
def test_a_template_that_would_bring_two_values_together_or_let_them_choose_has_a_mistake(
    mistakes_of: Mistaken, template: str, path: str, said: str
) -> None:
    (line,) = mistakes_of(TEMPLATE % template, {"LAKE": "dbname=lakes host=h"})
    assert line.startswith(f"{path}: ")
    assert said in line
    assert "hunter2" not in line


@pytest.mark.parametrize(
    ("appear", "path", "said"),
    [
        ("policy: create", "appear.policy", "needs the section template"),
        ("policy: sometimes", "appear.policy", "must be one of: 'off', 'propose', 'create'"),
        ("allow: '(a'", "appear.allow", "is no regular expression"),
        ("per_hour: -1", "appear.per_hour", "must be 0 or more"),
        ("total: many", "appear.total", "must be a whole number"),
    ],
)
def test_a_policy_that_can_not_be_followed_has_a_mistake(
    mistakes_of: Mistaken, appear: str, path: str, said: str
) -> None:
    (line,) = mistakes_of(f"{MINIMAL}appear: {{{appear}}}\n")
    assert line.startswith(f"{path}: ")
    assert said in line


@pytest.mark.parametrize(
    "template",
    [
        GOOD,
        f'{GOOD}, id: "t-{{routing_value}}"',
        f'{POSTGRES}, metadata_schema: "t_{{routing_value}}", data_path: "s3://bkt/{{routing_value}}/"',
        'catalog: "postgresql://u@h/t_{routing_value}", data_path: "s3://bkt/{routing_value}", create_database: true',
        'catalog_env: LAKE, schema: "{routing_value}", data_path: "s3://bkt/all"',
        'catalog: "sqlite:all.sqlite", table: "t_{routing_value}"',
        f'{GOOD}, properties: {{s3_region: "{{routing_value}}"}}',
    ],
)
def test_templates_that_keep_values_apart_load(load_text: Load, template: str) -> None:
    text = TEMPLATE % template + "appear: {policy: create, allow: '[a-z]+'}\n"
    assert load_text(text, {"LAKE": "dbname=lakes host=h"}).template.is_given
