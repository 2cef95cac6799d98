"""The documentation is in standard technical English, and cites nothing that is not in the repository."""

from __future__ import annotations

import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.reference import ROOT, cli

PRIVATE = (
    r"whoever",
    r"whomever",
    r"nobody(?:'s)?",
    r"everybody(?:'s)?",
    r"anybody(?:'s)?",
    r"somebody(?:'s)?",
    r"strangers?(?:')?",
    r"ones? that",
    r"no other's",
    r"he|him|his",
    r"mend(?:s|ed|ing)?",
    r"dear",
    r"anew",
    r"for ever",
    r"under way",
    r"gravest",
    r"rid of",
    r"as ever",
    r"be it",
    r"makes good",
    r"none that fits",
    r"not enough",
    r"for people",
    r"how it begins",
    r"to the letter",
    r"by the day",
    r"t(?:old|ells?) of",
    r"hears? of",
    r"all the same",
)
"""Words of a translated idiom; CONTRIBUTING.md says what to write instead."""

FOUND = re.compile(rf"\b(?:{'|'.join(PRIVATE)})(?!\w)", re.IGNORECASE)

DOCUMENTED = ("docs", "client", "tla")
PAGES = sorted([*ROOT.glob("*.md"), *(page for name in DOCUMENTED for page in (ROOT / name).rglob("*.md"))])


def prose(page: str) -> str:
    """A page without its code, quoted names and links' targets, and without the verdicts of old runs."""
    by_hand = re.sub(r"<!-- made by python -m tests\.torture\.table -->.*?<!-- end", "", page, flags=re.DOTALL)
    without_blocks = re.sub(r"^```.*?^```", "", by_hand, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`\n]*`", "", without_blocks))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_falls_back_into_the_idiom(page: Path) -> None:
    lines = enumerate(prose(page.read_text()).splitlines(), 1)
    assert not [f"{number}: {line[:120]}: {word[0]}" for number, line in lines if (word := FOUND.search(line))]


FOLDERS = ("services", "shared", "viaduck_demo", "client", "deploy")
MODULES = sorted(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))
TEXTS = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


def texts(module: Path) -> Iterator[tuple[int, str]]:
    """The lines of docstrings, comments and messages, without what they quote as code."""
    with module.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type in TEXTS:
                for offset, line in enumerate(token.string.splitlines()):
                    yield token.start[0] + offset, re.sub(r"``[^`]*``", "", line)


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS)
def test_no_docstring_comment_or_message_falls_back_into_the_idiom(folder: str) -> None:
    modules = [file for file in MODULES if (ROOT / folder) in file.parents]
    assert modules
    assert not [
        f"{module.relative_to(ROOT)}:{number}: {word[0]}"
        for module in modules
        for number, line in texts(module)
        if (word := FOUND.search(line))
    ]


def test_docstrings_comments_and_messages_are_all_read(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text('"""One."""\n# two\nthree = f"four {5}"  # ``nobody``\n')
    read = "".join(line for _, line in texts(module))
    assert all(word in read for word in ("One", "two", "four"))
    assert "nobody" not in read


SHOWN = (".html", ".js", ".css", ".yaml", ".yml", ".toml", ".conf")


def test_no_template_or_file_of_a_deployment_falls_back_into_the_idiom() -> None:
    files = [file for folder in FOLDERS for file in (ROOT / folder).rglob("*") if file.suffix in SHOWN]
    files = [file for file in files if ".min." not in file.name]
    files += [ROOT / "Makefile", *ROOT.glob("*.yaml"), *(ROOT / ".github").rglob("*.yml")]
    assert {".html", ".js", ".css", ".yaml"} <= {file.suffix for file in files}
    assert not [
        f"{file.relative_to(ROOT)}:{number}: {word[0]}"
        for file in files
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if (word := FOUND.search(line))
    ]


def test_no_help_text_falls_back_into_the_idiom() -> None:
    assert not [line for line in prose(cli({})).splitlines() if FOUND.search(line)]


def test_the_search_finds_what_it_looks_for() -> None:
    assert FOUND.search("Whoever finds no room is offered again.")
    assert FOUND.search("It is nobody's.")
    assert not FOUND.search("A mendacious anewly this: nothing.")


ELSEWHERE = re.compile(
    r"\b(?:DESIGN|SPEED|INTERFACE|RECIPES|CAPTURE)\b|\b(?:DUCKLAKE|STYLE|SOURCES|ROOMS|DIRECT_COMMIT)(?:\.md| §)"
)


def test_no_citation_leads_out_of_the_repository() -> None:
    folders = ("services", "shared", "viaduck_demo", "client", "tests", "bench", "docs", "tla", "deploy")
    files = [file for folder in folders for file in (ROOT / folder).rglob("*") if file.suffix in (".py", ".md", ".tla")]
    files = [file for file in [*files, *ROOT.glob("*.md")] if file != Path(__file__).resolve()]
    cited = [f"{file.relative_to(ROOT)}: {found[0]}" for file in files if (found := ELSEWHERE.search(file.read_text()))]
    assert not cited
