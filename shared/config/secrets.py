"""What must not be shown: passwords, keys and tokens, by name and by where they stand in a text."""

from __future__ import annotations

import re

HIDDEN = "***"

PASSWORD_WORDS = frozenset({"password", "sslpassword", "oauth_client_secret"})
SECRET_PROPERTIES = frozenset({"s3_access_key_id", "s3_secret_access_key", "s3_session_token"})

# How SQL inside SQL, libpq and Python put quotes around a value; one that is never closed reaches to the end.
QUOTED = r"''(?:(?!'')[\s\S])*''|'(?:[^'\\]|\\[\s\S])*(?:'|$)|\"(?:[^\"\\]|\\[\s\S])*(?:\"|$)"
SQL_LITERAL = r"'(?:[^']|'')*(?:'|$)"

NAMES = (
    r"(?:ssl)?password|passwd|pwd|oauth_client_secret|client_secret|(?:s3_|aws_)?secret_access_key"
    r"|(?:s3_|aws_)?access_key_id|(?:s3_|aws_)?session_token|X-Amz-(?:Signature|Credential|Security-Token)"
)

PATTERNS = tuple(
    (re.compile(pattern, re.IGNORECASE), replacement)
    for pattern, replacement in (
        (r"(\w://[^\s:/@]*):\S*@", rf"\1:{HIDDEN}@"),
        (rf"([?&](?:{NAMES})=)[^&\s'\"]*", rf"\1{HIDDEN}"),
        (rf"(?<![?&\w-])((?:[\w.]+\.)?(?:{NAMES})['\"]?\s*[=:]\s*)(?:{QUOTED}|(?:\\.|\S)+)", rf"\1{HIDDEN}"),
        (rf"\b((?:KEY_ID|SECRET|SESSION_TOKEN)\s+)(?:{SQL_LITERAL})", rf"\1{HIDDEN}"),
        (r"\b(Bearer\s+)\S+", rf"\1{HIDDEN}"),
    )
)


def scrub(text: str) -> str:
    """``text`` without what looks like a password, key or token: in URIs, key=value words, settings and SQL."""
    for pattern, replacement in PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def shown_variable(name: str) -> str:
    """The name of an environment variable for a message; not where someone put the secret itself in its place."""
    if not is_variable_name(name) or (len(name) >= 16 and "_" not in name):
        return "(not shown: it looks like a value)"
    return name


def is_variable_name(name: str) -> bool:
    return re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is not None
