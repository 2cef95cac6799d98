"""The only place where a name or a value becomes SQL text."""

from __future__ import annotations


def ident(name: str) -> str:
    """A quoted identifier. NUL can't occur in one, whatever the quoting."""
    if "\x00" in name:
        raise ValueError("an identifier can't hold a NUL character")
    return '"' + name.replace('"', '""') + '"'


def path(*parts: str) -> str:
    """A dotted path of quoted identifiers: catalog, schema, table."""
    return ".".join(ident(part) for part in parts)


def literal(value: str) -> str:
    """A quoted string; DuckDB's plain strings know no escapes but the doubled quote.

    NUL would end the statement, so it is spliced in by ``chr``.
    """
    quoted = "'" + value.replace("'", "''") + "'"
    return "(" + quoted.replace("\x00", "' || chr(0) || '") + ")" if "\x00" in value else quoted


def columns(names: tuple[str, ...], of: str = "") -> str:
    """A comma list of quoted columns, each qualified by ``of`` if given."""
    prefix = f"{of}." if of else ""
    return ", ".join(prefix + ident(name) for name in names)


def select_at(schema: str, table: str, names: tuple[str, ...], snapshot: int) -> str:
    """A statement that reads a table of the lake that is in use as it was at a snapshot."""
    return f"SELECT {columns(names)} FROM {path(schema, table)} AT (VERSION => {snapshot:d})"
