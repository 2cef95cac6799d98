"""A class name of the product means one thing: a search for it finds one class."""

from __future__ import annotations

import ast
from collections import defaultdict

from tests.layers import ROOT, nodes, sources

PRODUCT = ("services", "shared", "client", "viaduck_demo")


def test_each_class_name_is_defined_once() -> None:
    """Private ones included. What others know (a key of the configuration, a schema of ``/openapi.json``, a message,
    the Python client) keeps its name; what is within a service is named in full, such as ``ApplierService``."""
    places = defaultdict[str, list[str]](list)
    for file in sources(*PRODUCT):
        for node in nodes(file):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{file.relative_to(ROOT)}:{node.lineno}")
    assert {"Applier", "ApplierService", "Operation", "SourceCommit"} <= set(places)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
