"""A class name of the product means one thing: a search for it finds one class."""

from __future__ import annotations

import re
from collections import defaultdict

from tests.layers import ROOT, sources

PRODUCT = ("services", "shared", "client", "viaduck_demo")

CLASS = re.compile(r"^[ \t]*class[ \t]+(\w+)[ \t]*[(\[:]", re.MULTILINE)
"""Every class statement, wherever it stands: quicker than syntax trees, and finds too many rather than too few."""


def test_each_class_name_is_defined_once() -> None:
    """Private ones included. What others know (a key of the configuration, a schema of ``/openapi.json``, a message,
    the Python client) keeps its name; what is within a service is named in full, such as ``ApplierService``."""
    files = defaultdict[str, list[str]](list)
    for file in sources(*PRODUCT):
        for name in CLASS.findall(file.read_text()):
            files[name].append(str(file.relative_to(ROOT)))
    assert {"Applier", "ApplierService", "Operation", "SourceCommit"} <= set(files)
    assert {name: found for name, found in files.items() if len(found) > 1} == {}
