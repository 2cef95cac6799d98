from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from shared.kafka.acls import SERVICES, Grant, grants, rejected_grants, source_grants

PAGE = (Path(__file__).parents[4] / "docs/how-to/connect-to-kafka.md").read_text()
CLICKS = re.compile(
    r"^\| (group )?`([a-z.]+)` \| the (topic|deployment) \| ([^|]*)\| ([^|]*)\| ([^|]*)\|$", re.MULTILINE
)
ROW = re.compile(r"^\| (groups )?`(viaduck\.[a-z.-]+)\*?` \| ([^|]*)\| ([^|]*)\| ([^|]*)\|$", re.MULTILINE)


def said_of(rows: Iterable[Sequence[Any]]) -> dict[str, set[Grant]]:
    """Of rows of a mark of groups, a name, and a cell for each service."""
    said: dict[str, set[Grant]] = {service: set() for service in SERVICES}
    for group, name, *cells in rows:
        for service, cell in zip(SERVICES, cells, strict=True):
            for operation in filter(None, (each.strip() for each in cell.split(","))):
                said[service].add(Grant("group" if group else "topic", name, operation))
    return said


def test_the_table_of_rights_is_what_a_program_is_told() -> None:
    assert said_of(ROW.findall(PAGE)) == {service: set(grants(service)) for service in SERVICES}


def test_so_is_the_table_of_a_pipeline_that_lands_a_topic() -> None:
    rows = CLICKS.findall(PAGE)
    said = {
        place: said_of((*row[:2], *row[3:]) for row in rows if row[2] == place) for place in ("topic", "deployment")
    }
    assert said == {
        "topic": {service: set(source_grants(service, "clicks", "clicks")) for service in SERVICES},
        "deployment": {service: set(rejected_grants(service, "clicks")) for service in SERVICES},
    }
