"""libpq's connection words: which of them an untrusted lake may set, and the values of the others for such a lake.

What a connection string leaves out, libpq takes from ``PG*`` variables and from files in the home folder: a password, a
client certificate, another address. A lake that is not listed in the operator's file must not use those, so each word
with such a default gets an explicit value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

NOWHERE = "/dev/null/none"
"""A path that cannot exist; an empty name would mean the file in the home folder."""

TIMEOUTS = frozenset(
    {"connect_timeout", "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout"}
)
ANYBODYS = (
    frozenset({"host", "port", "dbname", "user", "sslmode", "channel_binding", "application_name"})
    | frozenset({"target_session_attrs"})
    | TIMEOUTS
)
"""Words that say where a lake is and how patiently it is asked."""

FILES = frozenset({"passfile", "sslcert", "sslkey", "sslrootcert", "sslcrl"})
"""What only an operator's own template may name besides: files on the machines that services run on."""

SSLMODES = ("disable", "allow", "prefer", "require", "verify-full")
"""``verify-ca`` is not among them: it needs a file with the authority, and verifies less."""

SYSTEM = "system"

PINNED = {
    "hostaddr": "",
    "port": "5432",
    "dbname": "",
    "user": "",
    "password": "",
    "passfile": NOWHERE,
    "options": "",
    "client_encoding": "",
    "application_name": "",
    "sslmode": "prefer",
    "sslnegotiation": "postgres",
    "sslcompression": "0",
    "sslcert": NOWHERE,
    "sslkey": NOWHERE,
    "sslcertmode": "disable",
    "sslrootcert": NOWHERE,
    "sslcrl": "",
    "sslcrldir": "",
    "sslsni": "1",
    "ssl_min_protocol_version": "TLSv1.2",
    "ssl_max_protocol_version": "",
    "min_protocol_version": "3.0",
    "max_protocol_version": "3.0",
    "requirepeer": "",
    "require_auth": "none,password,md5,scram-sha-256",
    "channel_binding": "prefer",
    "gssencmode": "disable",
    "gssdelegation": "0",
    "krbsrvname": "postgres",
    "gsslib": "",
    "target_session_attrs": "any",
    "load_balance_hosts": "disable",
    "connect_timeout": "10",
}
"""Every word that libpq 18 looks up in the environment, but ``host``, which must be given, and ``service``."""

SERVICE = "PGSERVICE"
"""The one variable that no word stands against: an empty service is looked for too."""

HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252}[A-Za-z0-9.])?|[0-9A-Fa-f:.]{2,45}")

MOST_HOSTS = 8
LONGEST_CONNECT_S = 30
"""For each host. A thread waits for all of them, one after the other."""

HOW = f"a lake that comes this way may have {', '.join(sorted(ANYBODYS))}; an operator may put more into a variable"


def faults(words: Mapping[str, str], *, files: bool = False) -> Iterator[str]:
    """What is wrong with the connection words of an untrusted lake. ``files``: they may name files."""
    for word in words:
        if word not in ANYBODYS and not (files and word in FILES):
            yield f"has the connection word {word}, which is not accepted here; {HOW}"
    if not words.get("host"):
        yield "names no host; write host=… (a socket of this machine is not for others)"
    elif not all(HOST.fullmatch(host) for host in words["host"].split(",")):
        yield "has a host that is no name and no address; write one such as db.internal"
    elif words["host"].count(",") >= MOST_HOSTS:
        yield f"names more than {MOST_HOSTS} hosts; write fewer"
    if not files and "sslmode" in words and words["sslmode"] not in SSLMODES:
        yield f"has an sslmode that is not accepted here; write one of: {', '.join(SSLMODES)}"
    if not files and not words.get("user"):
        yield "names no user; write user=…"


def pinned(words: Mapping[str, str]) -> dict[str, str]:
    """The words, with an explicit value for each that is missing and would come from the environment."""
    own = dict(PINNED)
    if words.get("sslmode") == "verify-full":
        own["sslrootcert"] = SYSTEM
    if words.get("sslcert"):
        del own["sslcertmode"]
    return own | {word: value for word, value in words.items() if value} | _bounded(words)


def _bounded(words: Mapping[str, str]) -> dict[str, str]:
    """How long it may take to connect, where an untrusted lake says so itself. 0 means without end to libpq."""
    asked = words.get("connect_timeout", "")
    if not asked.isascii() or not asked.isdecimal() or int(asked) == 0:
        return {"connect_timeout": PINNED["connect_timeout"]}
    return {"connect_timeout": str(min(int(asked), LONGEST_CONNECT_S))}
