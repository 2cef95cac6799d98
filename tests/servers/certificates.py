"""A certificate authority for one test run, and certificates for 127.0.0.1 as PEM files."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

VALID_FOR = timedelta(days=2)


@dataclass(frozen=True)
class Authority:
    """Signs; ``file`` is its own certificate, for whoever is to trust it."""

    file: Path
    _certificate: x509.Certificate
    _key: ec.EllipticCurvePrivateKey

    @classmethod
    def new(cls, folder: Path, name: str = "Viaduck's tests") -> Authority:
        folder.mkdir(parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _named(name)
        unsigned = _unsigned(subject, subject, key).add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        certificate = unsigned.sign(key, hashes.SHA256())
        file = folder / "authority.pem"
        file.write_bytes(certificate.public_bytes(Encoding.PEM))
        return cls(file, certificate, key)

    def server(self, file: Path) -> Path:
        """Write the key and certificate of a server on this machine into one file."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))])
        unsigned = _unsigned(_named("localhost"), self._certificate.subject, key).add_extension(names, False)
        certificate = unsigned.sign(self._key, hashes.SHA256())
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        file.write_bytes(private + certificate.public_bytes(Encoding.PEM) + self.file.read_bytes())
        return file


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _unsigned(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
    return builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + VALID_FOR)
