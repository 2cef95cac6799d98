"""Every line of shell in the documentation is parsed: quotes and loops close, and what it names is there."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fast.test_code_blocks import blocks
from tests.reference import ROOT, calls

PROGRAMS = {"viaduck", "make", "python", "docker", "curl", "pip", "uv", "git", "openssl", "echo", "export", "alert"}
"""What the documentation asks a reader to run; ``alert`` stands for a program of their own."""

HEREDOC = re.compile(r"<<-?'?(\w+)'?\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
ALTERNATIVES = re.compile(r"(?<=[\w-])\|(?=[\w-])")
REQUEST = re.compile(r"\b(GET|PUT|POST|DELETE)\b.*?(/v1/[\w./:-]*)")


def commands_of(text: str) -> Iterator[list[str]]:
    """The words of each command of a block. ``show|pause`` is a choice of the reader's and no pipe; what is explained
    behind three blanks is left out. Raises ``ValueError`` where a quote is not closed."""
    joined = HEREDOC.sub(r"<<\1\n", text).replace("\\\n", " ")
    for line in joined.splitlines():
        lexer = shlex.shlex(ALTERNATIVES.sub("/", line), posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        command: list[str] = []
        for word in [*lexer, ";"]:
            if re.fullmatch(r"[;&|]+", word):
                if command:
                    yield command
                command = []
            else:
                command.append(word)


def program(command: list[str]) -> str:
    """Its name, whatever folder and version it is called by, and behind ``do``."""
    name = Path(command[1] if command[0] == "do" and len(command) > 1 else command[0]).name
    return re.sub(r"[\d.]+$", "", name)


def wrong(text: str) -> list[str]:
    """What a block of shell says that no shell understands, or that is not there."""
    try:
        found = list(commands_of(text))
    except ValueError as error:
        return [str(error)]
    words = [command[0] for command in found]
    faults = [] if words.count("for") == words.count("done") == words.count("do") else ["a loop is not closed"]
    for command in found:
        name = program(command)
        if name not in PROGRAMS | {"for", "do", "done"}:
            faults.append(f"{name} is no program of PROGRAMS")
        faults += [f"{word} is not there" for word in command if is_missing(word)]
        if name == "python" and command[1] == "-m":
            faults += unknown_options(command[2], command[3:])
    return faults


def is_missing(word: str) -> bool:
    """Whether it names a file of the repository, of which there is none."""
    return bool(re.match(r"(\./|deploy/|docs/|tests/|client/)\w", word)) and not (ROOT / word).exists()


def unknown_options(module: str, words: list[str]) -> list[str]:
    """Options of one of our modules that its source does not name."""
    if module == "venv":
        return []
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return [f"there is no {module}"]
    file = Path(spec.origin)
    source = (file.with_name("__main__.py") if file.name == "__init__.py" else file).read_text()
    return [f"{module} has no {word}" for word in words if word.startswith("--") and f'"{word}"' not in source]


@pytest.mark.parametrize(("page", "text"), blocks("bash"), ids=lambda part: part.partition("\n")[0][:60])
def test_every_block_of_shell_is_well_formed_and_names_what_is_there(page: str, text: str) -> None:
    assert not wrong(text), page


@pytest.mark.parametrize(
    "text",
    [
        "echo 'open",
        "for lake in a b; do\n  echo $lake",
        "viaduckk up",
        "echo x | tea",
        "pip install ./clients",
        "docker build -f deploy/Dockerfil .",
        "python -m tests.torture --folt kill",
        "python -m tests.tortured --fault kill",
    ],
)
def test_a_wrong_block_is_noticed(text: str) -> None:
    assert wrong(text)


@pytest.mark.parametrize(
    "text", ["viaduck work list|replay …", "curl -d @- <<'JSON'\n{'it's'}\nJSON\n", "for a in b; do\n echo\ndone"]
)
def test_a_right_block_is_not(text: str) -> None:
    assert not wrong(text)


def requests() -> list[tuple[str, str, str, str]]:
    """Page, method, path and body of every request that is shown with its body."""
    shown = [(page, text) for kind in ("bash", "text") for page, text in blocks(kind)]
    return [
        (page, found[1], found[2], body[2] if (body := HEREDOC.search(text)) else text.partition("\n")[2])
        for page, text in shown
        if (found := REQUEST.search(text))
    ]


@pytest.mark.parametrize(("page", "method", "path", "body"), requests(), ids=lambda part: part.partition("\n")[0][:60])
def test_every_request_goes_to_a_call_of_the_interface_with_a_body_of_json(
    page: str, method: str, path: str, body: str
) -> None:
    known = [re.sub(r"\\\{\w+\\\}", r"[\\w.-]+", re.escape(each)) for each, its in calls() if its == method]
    assert any(re.fullmatch(each, path) for each in known), f"{page}: {method} {path}"
    assert isinstance(json.loads(body), dict), page


def test_both_ways_to_show_a_request_are_found() -> None:
    assert {page.rpartition("/")[2] for page, *_ in requests()} >= {"land-a-topic.md", "rest-api.md"}


def test_images_are_those_of_the_compose_file() -> None:
    composed = set(re.findall(r"image: (\S+:\S+)", (ROOT / "compose.yaml").read_text()))
    names = {image.partition(":")[0] for image in composed}
    told = {
        word
        for _, text in blocks("bash")
        for command in commands_of(text)
        if command[:2] == ["docker", "run"]
        for word in command
        if word.partition(":")[0] in names and ":" in word
    }
    assert len(told) == 3
    assert told <= composed
