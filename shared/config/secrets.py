"""What must not be shown: passwords, keys and tokens, by name and by where they stand in a text."""

from __future__ import annotations

import re

HIDDEN = "***"

PASSWORD_WORDS = frozenset({"password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key"})
SECRET_PROPERTIES = frozenset(
    {"s3_access_key_id", "s3_secret_access_key", "s3_session_token"}
    | {"gcs_key_id", "gcs_secret", "azure_connection_string"}
)

LONGEST = 8_000
"""Characters of an untrusted text that a message can use: the rest is cut off before anything searches it."""

LONGEST_LINE = 64_000
"""Of a line of the log, its traceback included."""

# Every repetition is possessive or ends where the next one begins: no text takes longer than its
# length. A value that is never closed reaches to the end, even behind a lone backslash.
SQL_IN_SQL = r"''(?:[^']++|'(?!'))*+''"
SINGLE = r"'(?:[^'\\]++|\\[\s\S])*+\\?(?:'|\Z)"
DOUBLE = r"\"(?:[^\"\\]++|\\[\s\S])*+\\?(?:\"|\Z)"
IN_JSON = r"(?P<quote>\\++['\"])(?:[^\\'\"]++|(?!(?P=quote))(?:\\++['\"]?|['\"]))*+(?:(?P=quote)|\Z)"
QUOTED = f"{SQL_IN_SQL}|{SINGLE}|{DOUBLE}|{IN_JSON}"
SQL_LITERAL = r"'(?:[^']++|'')*+(?:'|\Z)"

CUT = "@''"
"""Ends whatever may be open where a text was cut: the password of a URI, and a value in SQL inside SQL."""

NAMES = (
    r"(?:ssl)?password|passwd|pwd|scram_(?:client|server)_key|oauth_client_secret|client_secret"
    r"|(?:s3_|aws_)?secret_access_key|(?:s3_|aws_)?access_key_id|(?:s3_|aws_)?session_token|X-Amz-(?:Signature|Credential|Security-Token)"
    r"|gcs_key_id|gcs_secret|azure_connection_string|AccountKey|SharedAccessSignature"
)

PATTERNS = tuple(
    (re.compile(pattern, re.IGNORECASE), replacement)
    for pattern, replacement in (
        (rf"([?&](?:{NAMES})=)[^&\s'\"]*+", rf"\1{HIDDEN}"),
        (rf"(?<![?&\w-])((?:{NAMES})(?:\\*+['\"])?\s*+[=:]\s*+)(?:{QUOTED}|(?:\\.|\S)++)", rf"\1{HIDDEN}"),
        (rf"\b((?:KEY_ID|SECRET|SESSION_TOKEN|CONNECTION_STRING)\s++)(?:{SQL_LITERAL})", rf"\1{HIDDEN}"),
        (r"\b(Bearer\s++)\S++", rf"\1{HIDDEN}"),
    )
)

RUN = re.compile(r"\S++")
USER = re.compile(r"\w://[^\s:/@]*+:")


def scrub(text: str) -> str:
    """``text`` without what looks like a password, key or token: in URIs, key=value words, settings and SQL.

    Takes as long as the text is, whatever is in it.
    """
    if "://" in text and "@" in text:
        text = RUN.sub(_without_password, text)
    for pattern, replacement in PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def _without_password(run: re.Match[str]) -> str:
    """A URI's password reaches to the last @: it may hold others, and slashes."""
    text = run[0]
    end = text.rfind("@")
    user = USER.search(text, 0, end) if end > 0 else None
    return text if user is None else f"{text[: user.end()]}{HIDDEN}{text[end:]}"


def told(text: str, most: int = LONGEST) -> str:
    """As much of an untrusted text as a message can use, without secrets, also if the cut goes through a secret."""
    if len(text) <= most:
        return scrub(text)
    return scrub(text[:most] + CUT).removesuffix(CUT) + "…"


def shown_variable(name: str) -> str:
    """The name of an environment variable for a message; not where someone put the secret itself in its place."""
    if not is_variable_name(name) or (len(name) >= 16 and "_" not in name):
        return "(not shown: it looks like a value)"
    return name


def is_variable_name(name: str) -> bool:
    return re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is not None
