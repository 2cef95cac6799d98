"""A YAML file as a tree that still knows what was written: lines, duplicate keys, and which plain words are no text."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import yaml

from shared.config.config_errors import UNWRITABLE, Mistakes, Position, join, quoted
from shared.contracts.errors import ConfigError

MAX_DEPTH = 32
"""Far more than a configuration needs, far less than what libyaml's recursion survives."""

MAX_BYTES = 64_000_000

TEXT, MERGE = "tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"

Kind = Literal["null", "bool", "int", "float", "date"]

KINDS: Mapping[str, Kind] = {
    "tag:yaml.org,2002:null": "null",
    "tag:yaml.org,2002:bool": "bool",
    "tag:yaml.org,2002:int": "int",
    "tag:yaml.org,2002:float": "float",
    "tag:yaml.org,2002:timestamp": "date",
}

Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Ten times faster where PyYAML was built with libyaml: thousands of destinations load in half a second."""


@dataclass(frozen=True)
class Plain:
    """A scalar that YAML takes for something else than text, as it was written."""

    kind: Kind
    text: str


Tree: TypeAlias = "dict[str, Tree] | list[Tree] | str | Plain"


@dataclass(frozen=True)
class YamlDocument:
    tree: dict[str, Tree]
    positions: Mapping[str, Position]


def read(path: Path, mistakes: Mistakes) -> YamlDocument:
    """Read a file. Mistakes inside it are noted; a file that cannot be parsed raises ``ConfigError``."""
    root = _compose(path, _text(path))
    if root is None:
        raise ConfigError([f"{path}: the file is empty; write at least the sections source and routing"])
    builder = _Builder(mistakes)
    tree = builder.build(root, "")
    if not isinstance(tree, dict):
        raise ConfigError(
            [f"{path}: must be a mapping of sections; write source:, routing: and so on at its left edge"]
        )
    return YamlDocument(tree, builder.positions)


def from_json(values: Mapping[str, Any], mistakes: Mistakes) -> dict[str, Tree]:
    """What came as JSON, as the tree of a file that says the same. Mistakes are noted."""
    return {key: _grown(value, _named(key, "", mistakes), 2, mistakes) for key, value in values.items()}


def to_json(tree: Tree) -> Any:
    """A file's tree as JSON. What has more than one reading, such as 007 or NO, is the text that was written."""
    if isinstance(tree, dict):
        return {key: to_json(each) for key, each in tree.items()}
    if isinstance(tree, list):
        return [to_json(each) for each in tree]
    return _plainly(tree) if isinstance(tree, Plain) else tree


def _plainly(plain: Plain) -> str | int | float | bool | None:
    text = plain.text
    if plain.kind == "null":
        return None
    if plain.kind == "bool" and text in ("true", "false"):
        return text == "true"
    with suppress(ValueError):
        if plain.kind == "int" and str(int(text)) == text:
            return int(text)
        if plain.kind == "float" and repr(float(text)) == text:
            return float(text)
    return text


def _grown(value: object, path: str, depth: int, mistakes: Mistakes) -> Tree:
    if depth > MAX_DEPTH:
        mistakes.note(path, f"is nested more than {MAX_DEPTH} deep; no key needs that")
        return Plain("null", "")
    if isinstance(value, dict):
        return {key: _grown(each, _named(key, path, mistakes), depth + 1, mistakes) for key, each in value.items()}
    if isinstance(value, list):
        return [_grown(each, join(path, number), depth + 1, mistakes) for number, each in enumerate(value)]
    if isinstance(value, str):
        return _writable(value, path, mistakes)
    if isinstance(value, bool):
        return Plain("bool", str(value).lower())
    if value is None:
        return Plain("null", "")
    return Plain("int" if isinstance(value, int) else "float", str(value))


def _named(key: str, path: str, mistakes: Mistakes) -> str:
    place = join(path, key)
    _writable(key, place, mistakes)
    return place


def _writable(text: str, path: str, mistakes: Mistakes) -> str:
    if UNWRITABLE.search(text):
        mistakes.note(path, "holds a null character or half of a surrogate pair; remove it")
    return text


def _text(path: Path) -> str:
    content = _content(path)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ConfigError([f"{path}: line {line}: is not UTF-8 text; save the file as UTF-8"]) from None


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError([f"{path}: there is no such file; correct the path, or name another one with -c"]) from None
    except IsADirectoryError:
        raise ConfigError([f"{path}: is a folder; name the file in it, such as {path / 'viaduck.yaml'}"]) from None
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or "not a path"
        raise ConfigError([f"{path}: can't be read: {why}; correct the path or its permissions"]) from None
    if len(content) > MAX_BYTES:
        raise ConfigError([f"{path}: is larger than {MAX_BYTES // 1_000_000} MB; add destinations over REST instead"])
    return content


def _compose(path: Path, text: str) -> yaml.Node | None:
    try:
        _check_depth(path, text)
        return yaml.compose(text, Loader)
    except yaml.YAMLError as error:
        raise ConfigError([f"{path}: {_where(error)}is not YAML: {_why(error)}"]) from None
    except (ValueError, OverflowError, RecursionError):
        raise ConfigError(
            [f"{path}: is not YAML: it has an escape that stands for no character; write it out"]
        ) from None


def _check_depth(path: Path, text: str) -> None:
    """Composing recurses, in C without a limit; counting events does not."""
    depth = 0
    for event in yaml.parse(text, Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            line = f"line {event.start_mark.line + 1}: " if event.start_mark else ""
            raise ConfigError([f"{path}: {line}is nested more than {MAX_DEPTH} deep; no key needs that"])


def _where(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    return f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""


def _why(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError):
        said = ", ".join(part for part in (error.context, error.problem) if part)
        return f"{said}; check indentation and quotes there"
    return "it has a character that YAML does not allow; remove it, or save the file as plain UTF-8 text"


@dataclass
class _Builder:
    """Nodes → tree. What an alias repeats is built once; an alias inside what it repeats is a mistake."""

    mistakes: Mistakes
    positions: dict[str, Position] = field(default_factory=dict)
    _built: dict[yaml.Node, Tree] = field(default_factory=dict)
    _open: set[yaml.Node] = field(default_factory=set)

    def build(self, node: yaml.Node, path: str) -> Tree:
        self.positions.setdefault(path, _position(node))
        if node in self._open:
            self.mistakes.note(path, "is an alias of what it stands in; write the values out")
            return Plain("null", "")
        if node not in self._built:
            self._open.add(node)
            self._built[node] = self._new(node, path)
            self._open.remove(node)
        return self._built[node]

    def _new(self, node: yaml.Node, path: str) -> Tree:
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(child, join(path, number)) for number, child in enumerate(node.value)]
        return self._scalar(node, path)

    def _scalar(self, node: yaml.Node, path: str) -> Tree:
        text: str = node.value
        _writable(text, path, self.mistakes)
        if node.tag != TEXT and node.tag not in KINDS:
            self.mistakes.note(path, f"has the tag {quoted(node.tag)}, which means nothing here; write the plain value")
        kind = KINDS.get(node.tag)
        return text if kind is None else Plain(kind, text)

    def _mapping(self, node: yaml.MappingNode, path: str) -> Tree:
        merged: dict[str, Tree] = {}
        own: dict[str, Tree] = {}
        for key, value in node.value:
            if key.tag == MERGE:
                merged = {**self._merged(value, path), **merged}
            elif not isinstance(key, yaml.ScalarNode):
                self.mistakes.note(
                    path, f"has a list or mapping for a key on line {key.start_mark.line + 1}; write a name"
                )
            else:
                self._entry(own, key, value, path)
        return {**merged, **own}

    def _entry(self, own: dict[str, Tree], key: yaml.ScalarNode, value: yaml.Node, path: str) -> None:
        self._scalar(key, place := join(path, key.value))
        line = key.start_mark.line + 1
        if key.value in own:
            first, _ = self.positions[place]
            self.mistakes.note(place, f"is given twice, on lines {first} and {line}; keep one of them")
            return
        self.positions[place] = _position(key)
        own[key.value] = self.build(value, place)

    def _merged(self, value: yaml.Node, path: str) -> dict[str, Tree]:
        parts = value.value if isinstance(value, yaml.SequenceNode) else [value]
        merged: dict[str, Tree] = {}
        for part in parts:
            tree = self.build(part, path)
            if not isinstance(tree, dict):
                self.mistakes.note(path, "merges something that is no mapping with <<; name the anchor of a mapping")
                continue
            merged = {**tree, **merged}
        return merged


def _position(node: yaml.Node) -> Position:
    return node.start_mark.line + 1, node.start_mark.column + 1
