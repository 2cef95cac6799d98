"""What a registry's client makes of its answers: a schema, an id that is unknown, or a registry that does not tell."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from shared.contracts.errors import SourceError
from shared.kafka.schema_registry import PROPERTIES, RegisteredSchema, RegistrySettings, SchemaRegistry
from tests.servers.certificates import Authority
from tests.servers.ports import free_port
from tests.servers.registry import Registry, running_registry


@pytest.fixture
def registry() -> Iterator[Registry]:
    with running_registry() as running:
        yield running


def client(registry: Registry, **properties: str) -> SchemaRegistry:
    given = tuple((name.replace("_", "."), value) for name, value in properties.items())
    return SchemaRegistry(RegistrySettings(registry.url, given))


def test_a_schema_is_fetched_once(registry: Registry) -> None:
    registry.add(7, "long")
    registry.add(8, {"type": "object"}, "JSON")
    with closing(client(registry)) as schemas:
        assert [schemas.schema(7) for _ in range(3)] == [RegisteredSchema("AVRO", '"long"')] * 3
        assert schemas.schema(8) == RegisteredSchema("JSON", '{"type": "object"}')
    assert [path for path, _ in registry.asked] == ["/schemas/ids/7", "/schemas/ids/8"]


def test_an_unknown_id_may_be_known_later(registry: Registry) -> None:
    with closing(client(registry)) as schemas:
        assert schemas.schema(7) is None
        registry.add(7, "long")
        assert schemas.schema(7) is not None


def test_a_registry_answers_whether_or_not_it_has_a_schema(registry: Registry) -> None:
    with closing(client(registry)) as schemas:
        schemas.ping()
        registry.add(1, "long")
        schemas.ping()
        registry.status = 503
        with pytest.raises(SourceError, match="answers 503 "):
            schemas.ping()


def test_references_come_before_those_that_need_them(registry: Registry) -> None:
    def to(subject: str) -> dict[str, object]:
        return {"name": subject, "subject": subject, "version": 1}

    registry.add(1, "whole", None, to("b/x"), to("c"))
    registry.subjects["b%2Fx", 1] = {"schema": "B", "references": [to("c")]}
    registry.subjects["c", 1] = {"schema": "C", "references": [to("b/x")]}
    with closing(client(registry)) as schemas:
        found = schemas.schema(1)
    assert found is not None
    assert found.references == (("c", "C"), ("b/x", "B"))


def test_of_protobuf_the_descriptors_are_fetched(registry: Registry) -> None:
    registry.add(1, "text", "PROTOBUF", {"name": "other.proto", "subject": "o", "version": 2})
    registry.subjects["o", 2] = {"schema": "T3RoZXI="}
    with closing(client(registry)) as schemas:
        found = schemas.schema(1)
    assert found is not None
    assert (found.kind, found.references) == ("PROTOBUF", (("other.proto", "T3RoZXI="),))
    assert [path for path, _ in registry.asked] == [
        "/schemas/ids/1", "/schemas/ids/1?format=serialized", "/subjects/o/versions/2?format=serialized",
    ]  # fmt: skip


@pytest.mark.parametrize("status", [401, 403, 404, 500, 503, 302])
def test_any_other_answer_is_no_word_on_a_record(registry: Registry, status: int) -> None:
    registry.status = status
    with closing(client(registry)) as schemas, pytest.raises(SourceError, match=f"answers {status} ") as failed:
        schemas.schema(7)
    assert failed.value.type == "source_unreachable"


def test_a_registry_that_is_down_is_told_by_its_place_without_secrets() -> None:
    settings = RegistrySettings(f"http://127.0.0.1:{free_port()}", (("basic.auth.user.info", "me:secret"),))
    with closing(SchemaRegistry(settings)) as schemas, pytest.raises(SourceError) as failed:
        schemas.schema(7)
    assert failed.value.type == "source_unreachable"
    assert settings.place in failed.value.message
    assert "secret" not in failed.value.message + failed.value.hint + repr(settings)


def test_credentials_are_sent(registry: Registry) -> None:
    registry.add(7, "long")
    for given, sent in (
        ({"basic_auth_user_info": "me:a:b"}, "Basic " + base64.b64encode(b"me:a:b").decode()),
        ({"bearer_auth_token": "token"}, "Bearer token"),
        ({}, ""),
    ):
        with closing(client(registry, **given)) as schemas:
            schemas.schema(7)
        assert registry.asked[-1][1] == sent


def test_a_registry_is_trusted_by_its_authority_and_asks_for_a_certificate(tmp_path: Path) -> None:
    authority = Authority.new(tmp_path)
    pem = authority.server(tmp_path / "server.pem")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pem)
    tls.load_verify_locations(authority.file)
    tls.verify_mode = ssl.CERT_REQUIRED
    trusted, shown = {"ssl_ca_location": str(authority.file)}, {"ssl_certificate_location": str(pem)}
    with running_registry(tls) as registry:
        registry.add(7, "long")
        for given in ({}, shown, trusted, {**trusted, "ssl_certificate_location": str(tmp_path / "none.pem")}):
            with closing(client(registry, **given)) as schemas, pytest.raises(SourceError) as failed:
                schemas.schema(7)
            assert failed.value.type == "source_unreachable"
        with closing(client(registry, **trusted, **shown, ssl_key_location=str(pem))) as schemas:
            assert schemas.schema(7) is not None


def test_the_file_knows_the_same_properties() -> None:
    from shared.config.topic_rules import REGISTRY_PROPERTIES

    assert REGISTRY_PROPERTIES == PROPERTIES
