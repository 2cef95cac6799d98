"""Signatures of messages: only holders of the deployment's key can write what the services act on.

Every client that reaches a broker can write to its topics, and with the embedded broker that is every user of the
machine. So each message carries an HMAC (SHA-256) of its topic, its key and its value. A message without a valid one is
unreadable and becomes a dead letter. A signed message that is sent again is still valid; its content has a version, a
generation or a position, which the consumer compares.
"""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from shared.config.model import Kafka
from shared.contracts.errors import ConfigError

SIGNATURE_HEADER = "viaduck-signature"

KEY_FILE = "VIADUCK_SIGNING_KEY_FILE"
"""The environment variable by which ``viaduck up`` tells its services where the key is that it made."""

OWN_FILE = "signing.key"
SHORTEST = 32
"""Bytes of a key: as many as the digest has."""

SCHEME = "1"
UNSIGNED = "it has no signature: its sender does not have kafka.signing_key, or is an older version of Viaduck"
WRONG = "its signature is not that of its topic, key and value: it was forged, changed, or signed with another key"


@dataclass(frozen=True)
class Signing:
    """Signs with ``key``, and takes what ``key`` or one of ``former`` signed. Nothing of it is ever shown."""

    key: bytes = field(repr=False)
    former: tuple[bytes, ...] = field(default=(), repr=False)

    def signature(self, topic: str, key: bytes | None, value: bytes | None) -> str:
        """What the header says; ``value`` None is a tombstone, which is not the same as an empty value."""
        return f"{SCHEME}:{hmac.digest(self.key, _signed(topic, key, value), 'sha256').hex()}"

    def distrust(self, topic: str, key: bytes | None, value: bytes | None, said: str | None) -> str | None:
        """Why a message with the signature ``said`` is not to be believed; None where it is."""
        if not said:
            return UNSIGNED
        signed = _signed(topic, key, value)
        for known in (self.key, *self.former):
            right = f"{SCHEME}:{hmac.digest(known, signed, 'sha256').hex()}"
            if hmac.compare_digest(right.encode(), said.encode()):
                return None
        return WRONG


def _signed(topic: str, key: bytes | None, value: bytes | None) -> bytes:
    """Topic, key and value, each behind its length, so that nothing of one can be taken for another's."""
    parts = (b"-" if part is None else len(part).to_bytes(8) + part for part in (topic.encode(), key, value))
    return b"\x00".join((b"viaduck message " + SCHEME.encode(), *parts))


def signing_of(kafka: Kafka, folder: Path, environ: Mapping[str, str] = os.environ) -> Signing | None:
    """The keys that a file names, or that ``viaduck up`` made; None where the file switches signing off.

    Relative paths are against ``folder``. Raises ``ConfigError`` where there is no key, or none that can be used.
    """
    if kafka.signing == "off":
        return None
    key = _named(kafka, "signing_key", folder, environ)
    if key is None and environ.get(KEY_FILE):
        key = _read(KEY_FILE, Path(environ[KEY_FILE]))
    if key is None:
        raise ConfigError([
            "kafka.signing_key_env: needed by a service that runs alone, and the same for all of a deployment; name the"
            " variable that holds the key, or its file by kafka.signing_key_file. `openssl rand -hex 32` makes one;"
            ' kafka.signing: "off" leaves it to the broker\'s ACLs who may write'
        ])  # fmt: skip
    former = _named(kafka, "former_signing_key", folder, environ)
    return Signing(key, () if former is None else (former,))


def is_configured(kafka: Kafka) -> bool:
    """Whether a file says which key signs, or that none does."""
    return kafka.signing == "off" or kafka.signing_key_env is not None or kafka.signing_key_file is not None


def own_key(state_dir: Path) -> Path:
    """The key of a ``viaduck up`` whose file names none: created once, and readable by this user only.

    Raises ``ConfigError`` if it cannot be stored.
    """
    file = state_dir / OWN_FILE
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        return _kept(file)
    except OSError as error:
        raise ConfigError([f"state_dir: can't write {file} ({error.strerror}); choose another"]) from None
    with os.fdopen(handle, "w") as out:
        out.write(secrets.token_hex(SHORTEST))
    return file


def _kept(file: Path) -> Path:
    """A key that another user may have read is not used. A start that was killed may have left an empty file."""
    if file.stat().st_mode & 0o077:
        raise ConfigError([f"state_dir: {file} may be read by others; remove it, and another is made"])
    if file.stat().st_size == 0:
        file.write_text(secrets.token_hex(SHORTEST))
    return file


def _named(kafka: Kafka, name: str, folder: Path, environ: Mapping[str, str]) -> bytes | None:
    variable, file = getattr(kafka, f"{name}_env"), getattr(kafka, f"{name}_file")
    if variable is not None:
        if variable not in environ:
            raise ConfigError([f"kafka.{name}_env: the environment variable {variable} is not set; set it"])
        return _usable(f"kafka.{name}_env", environ[variable])
    return None if file is None else _read(f"kafka.{name}_file", folder / Path(file).expanduser())


def _read(where: str, file: Path) -> bytes:
    try:
        return _usable(where, file.read_text())
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError([f"{where}: {file} can't be read: {why}"]) from None


def _usable(where: str, text: str) -> bytes:
    key = text.strip().encode()
    if len(key) < SHORTEST:
        raise ConfigError([f"{where}: the key is shorter than {SHORTEST} characters; `openssl rand -hex 32` makes one"])
    return key
