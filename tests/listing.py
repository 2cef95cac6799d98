"""Which tests pytest collects, as another process of it says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.tiers import Tier

ROOT = Path(__file__).resolve().parents[1]

LISTING = """
import json, sys, pytest
from tests.tiers import parameters_of, tiers_of

class Listing:
    def __init__(self):
        self.found = {}

    def pytest_collection_finish(self, session):
        self.found = tiers_of(parameters_of(session.items))

def listed(arguments):
    listing = Listing()
    code = pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider", "-n", "0", *arguments], plugins=[listing])
    assert code in (0, 5), code
    return listing.found

with open(sys.argv[1], "w") as file:
    json.dump([listed(arguments) for arguments in json.loads(sys.argv[2])], file)
"""


def collected(folder: Path, *runs: Sequence[str]) -> list[dict[str, Tier]]:
    """The tier of each test that is collected with those arguments, for each of several runs: one process does them
    all, since most of a run's time goes into imports. ``folder`` is for its answer."""
    file = folder / "collected.json"
    command = [sys.executable, "-c", LISTING, str(file), json.dumps([[*arguments] for arguments in runs])]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    return [{nodeid: Tier(tier) for nodeid, tier in found.items()} for found in json.loads(file.read_text())]
