"""Every code block of the documentation is parsed: commands and options exist, modules and targets are there."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import duckdb
import pytest

from tests.reference import ROOT, commands

PAGES = sorted(
    [*ROOT.glob("*.md"), *(page for name in ("docs", "client", "tla") for page in (ROOT / name).rglob("*.md"))]
)
LANGUAGES = {"bash", "json", "mermaid", "nginx", "python", "sql", "text", "yaml"}
"""yaml is loaded by ``tests/fast/shared/config/test_documentation.py``, mermaid made by ``tests.layers``, and nginx run
by ``tests/fast/control/web/test_proxy_nginx.py``. What the lines of shell say beside ``viaduck``:
``tests/fast/test_shell_blocks.py``."""

FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[tuple[str, str]]:
    """The blocks of a language, each with its page."""
    return [
        (str(page.relative_to(ROOT)), text)
        for page in PAGES
        for found, text in FENCE.findall(page.read_text())
        if found == language
    ]


def lines(language: str = "bash") -> Iterator[tuple[str, str]]:
    for page, text in blocks(language):
        for line in text.replace("\\\n", " ").splitlines():
            yield page, line.strip()


def inline() -> Iterator[tuple[str, str]]:
    """Commands within a sentence."""
    for page in PAGES:
        without_blocks = FENCE.sub("", page.read_text())
        yield from ((page.name, found) for found in re.findall(r"`(viaduck [^`\n]+)`", without_blocks))


def spelled_out(line: str) -> list[str]:
    """``viaduck work list|replay`` are two commands."""
    several = next((word for word in line.split() if re.fullmatch(r"[a-z-]+(\|[a-z-]+)+", word)), None)
    return [line.replace(several, each, 1) for each in several.split("|")] if several else [line]


KNOWN = cache(commands)


def unknown(line: str) -> str | None:
    """What a command line of ``viaduck`` says that the command line does not know."""
    words = shlex.split(re.split(r" {3,}(?=\w)", line)[0], comments=True)
    known, named = KNOWN(), "viaduck"
    while (words and f"{named} {words[0]}" in known) or (words and words[0] == "viaduck"):
        word = words.pop(0)
        named = word if word == "viaduck" else f"{named} {word}"
    group = getattr(known[named], "commands", {})
    if group and words and re.fullmatch(r"[a-z][a-z-]*", words[0]):
        return words[0]
    options = {option for each in known[named].params for option in (*each.opts, *each.secondary_opts)} | {"--help"}
    return next((word for word in words if re.fullmatch(r"--?[a-z][a-z-]*", word) and word not in options), None)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_says_what_it_is(page: Path) -> None:
    assert {language for language, _ in FENCE.findall(page.read_text())} <= LANGUAGES


def test_every_command_and_option_exists() -> None:
    told = [(page, line) for page, line in lines() if line.startswith("viaduck ")]
    assert len(told) > 30
    wrong = [(page, each, unknown(each)) for page, line in [*told, *inline()] for each in spelled_out(line)]
    assert not [each for each in wrong if each[2] is not None]


@pytest.mark.parametrize(
    "line", ["viaduck upp -c x", "viaduck status --jsn", "viaduck work lst", "viaduck destination add x --at y"]
)
def test_a_wrong_command_is_noticed(line: str) -> None:
    assert unknown(line) is not None


def test_every_target_and_module_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    told = [line for _, line in (*lines(), *lines("text"))]
    targets = [match[1] for line in told if (match := re.match(r"make ([\w-]+)", line))]
    assert targets
    assert not [target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)]
    modules = {match[1] for line in told if (match := re.search(r"^python -m ([\w.]+)", line))}
    assert modules
    assert not [name for name in modules if importlib.util.find_spec(name) is None]


def test_every_json_block_is_json() -> None:
    assert blocks("json")
    for page, text in blocks("json"):
        assert isinstance(json.loads(text), dict), page


def test_every_statement_parses() -> None:
    assert blocks("sql")
    for _, text in blocks("sql"):
        assert duckdb.extract_statements(text)


def test_every_program_compiles() -> None:
    assert blocks("python")
    for page, text in blocks("python"):
        compile(text, page, "exec")
