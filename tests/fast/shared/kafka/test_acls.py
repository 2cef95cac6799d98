from __future__ import annotations

import re
from pathlib import Path

from shared.kafka.acls import SERVICES, Grant, grants

PAGE = (Path(__file__).parents[4] / "docs/how-to/connect-to-kafka.md").read_text()
ROW = re.compile(r"^\| (groups )?`(viaduck\.[a-z.-]+)\*?` \| ([^|]*)\| ([^|]*)\| ([^|]*)\|$", re.MULTILINE)


def test_the_table_of_rights_is_what_a_program_is_told() -> None:
    said: dict[str, set[Grant]] = {service: set() for service in SERVICES}
    for group, name, *cells in ROW.findall(PAGE):
        for service, cell in zip(SERVICES, cells, strict=True):
            for operation in filter(None, (each.strip() for each in cell.split(","))):
                said[service].add(Grant("group" if group else "topic", name, operation))
    assert said == {service: set(grants(service)) for service in SERVICES}
