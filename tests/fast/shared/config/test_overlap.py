"""Two lakes never keep their files in one place, in a file and over several; ``control`` tests REST and templates."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.config.deployment import load_all
from shared.config.path_overlap import FEW, PathClaim, Paths, claim_of
from shared.contracts.errors import ConfigError
from shared.contracts.messages import LakeRef
from tests.fast.shared.config.conftest import Load, Mistaken

HEAD = (
    'source: {catalog: "sqlite:source.sqlite", table: events, data_path: "s3://shared/source/"}\nrouting: {field: f}\n'
)
TWO = (
    HEAD
    + """destinations:
  - {id: a, routing_value: a, catalog: "%s", data_path: "%s"}
  - {id: b, routing_value: b, catalog: "%s", data_path: "%s", table: other}
"""
)

OVERLAPPING = [
    ("s3://bucket/x/", "s3://bucket/x"), ("s3://bucket/x", "s3://bucket/x/y/z/"), ("s3://bucket/x/y", "s3://bucket/x"),
    ("s3://bucket", "s3://bucket/y"), ("s3://bucket//x/", "s3://bucket/x"), ("s3://bucket/x", "s3a://bucket/x"),
    ("data/x", "data/x/"), ("data/x", "./data/../data/x/y"), ("a.sqlite.files", "a.sqlite.files/deeper"),
]  # fmt: skip
APART = [
    ("s3://bucket/x", "s3://bucket/xy"), ("s3://bucket/tenant-1/", "s3://bucket/tenant-10/"), ("s3://one/x", "s3://two/x"),
    ("data/x", "data/xy"), ("data/x", "s3://data/x"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), OVERLAPPING)
def test_two_lakes_of_a_file_in_one_place_are_refused_with_both_names(
    mistakes_of: Mistaken, one: str, other: str
) -> None:
    (line,) = mistakes_of(TWO % ("sqlite:a.sqlite", one, "sqlite:b.sqlite", other))
    assert line.startswith("destinations[1].data_path: ")
    assert "destinations[0] (a), which is another lake" in line


@pytest.mark.parametrize(("one", "other"), APART)
def test_neighbours_are_no_clash(load_text: Load, one: str, other: str) -> None:
    assert len(load_text(TWO % ("sqlite:a.sqlite", one, "sqlite:b.sqlite", other)).destinations) == 2


@pytest.mark.parametrize(("one", "other"), OVERLAPPING[:4])
def test_destinations_of_one_lake_share_its_place(load_text: Load, one: str, other: str) -> None:
    assert len(load_text(TWO % ("sqlite:a.sqlite", one, "sqlite:./a.sqlite", other)).destinations) == 2


def test_the_same_bucket_of_two_stores_is_two_places(load_text: Load) -> None:
    text = TWO % ("sqlite:a.sqlite", "s3://bucket/x", "sqlite:b.sqlite", "s3://bucket/x")
    own = text.replace("table: other", "table: other, properties: {s3_endpoint: 'b-store:9000'}")
    assert len(load_text(own).destinations) == 2


@pytest.mark.parametrize("path", ["s3://shared/source", "s3://shared/source/a", "s3://shared"])
def test_the_sources_place_is_nobodys(mistakes_of: Mistaken, path: str) -> None:
    (line,) = mistakes_of(TWO % ("sqlite:a.sqlite", path, "sqlite:b.sqlite", "s3://bucket/b"))
    assert line.startswith("destinations[0].data_path: ")
    assert "the source, which is another lake" in line


def test_a_sqlite_lake_that_says_nothing_has_the_folder_beside_its_catalog(mistakes_of: Mistaken) -> None:
    text = (TWO % ("sqlite:a.sqlite", "x", "sqlite:b.sqlite", "a.sqlite.files")).replace('data_path: "x"', 'name: "x"')
    (line,) = mistakes_of(text)
    assert "destinations[1].data_path: is that of destinations[0] (a)" in line


def test_lakes_of_two_files_in_one_place_are_refused_with_both_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        given = TWO % (f"sqlite:{name}-a.sqlite", f"s3://{name}/a", f"sqlite:{name}-b.sqlite", "s3://bucket/b/")
        source = given.replace("s3://shared/source/", f"s3://shared/{name}/").replace("source.sqlite", f"{name}.sqlite")
        (tmp_path / f"{name}.yaml").write_text(f"pipeline: {name}\n{source}")
    with pytest.raises(ConfigError) as caught:
        load_all([tmp_path])
    (line,) = caught.value.mistakes
    assert line.startswith(f"{tmp_path}/two.yaml: destinations[1].data_path: is that of destinations[1] (b) in ")
    assert f"{tmp_path}/one.yaml" in line


@pytest.mark.parametrize("asked_before", [0, FEW])
def test_few_questions_and_many_have_the_same_answers(asked_before: int) -> None:
    paths = Paths()
    for number in range(100):
        paths.add(PathClaim(f"d{number}", number, ("s3", "bucket", f"{number}")))
    for _ in range(asked_before):
        assert paths.clash(PathClaim("x", "x", ("s3", "other"))) is None
    assert "is that of d7, " in str(paths.clash(PathClaim("x", "x", ("s3", "bucket", "7"))))
    assert "lies within that of d7, " in str(paths.clash(PathClaim("x", "x", ("s3", "bucket", "7", "y"))))
    assert "holds that of d" in str(paths.clash(PathClaim("x", "x", ("s3", "bucket"))))
    assert paths.clash(PathClaim("x", 7, ("s3", "bucket", "7"))) is None
    assert paths.clash(PathClaim("d7", "moved", ("s3", "bucket", "7"))) is None
    paths.discard(PathClaim("d7", 7, ("s3", "bucket", "7")))
    assert paths.clash(PathClaim("x", "x", ("s3", "bucket", "7"))) is None


def test_a_lake_whose_catalog_alone_knows_claims_nothing() -> None:
    assert claim_of("a", "a", LakeRef(catalog_env="LAKE")) is None
    assert claim_of("a", "a", LakeRef(catalog="postgres:dbname=x")) is None
