"""Which lake a destination is in, by what its declaration says."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.control.model.declared import identity
from shared.contracts.messages import LakeRef

STORES: dict[str, dict[str, str]] = {
    "s3://box/a/": {"s3_secret_access_key_env": "KEY"},
    "gs://box/a/": {"gcs_secret_env": "KEY"},
    "az://box/a/": {"azure_connection_string_env": "KEY"},
    "abfss://box/a/": {"azure_account": "lakes", "azure_provider": "credential_chain"},
}


@pytest.mark.parametrize("data_path", STORES)
def test_two_names_of_one_catalog_are_one_lake_whatever_opens_its_files(data_path: str, tmp_path: Path) -> None:
    """Control needs no tenant's keys."""
    catalog = LakeRef(catalog=f"sqlite:{tmp_path}/a.sqlite", data_path=data_path, properties=STORES[data_path])
    variable = LakeRef(catalog_env="LAKE", data_path=data_path, properties=STORES[data_path])
    found = identity(catalog, tmp_path, {})
    assert found is not None
    assert identity(variable, tmp_path, {"LAKE": f"sqlite:{tmp_path}/./a.sqlite"}) == found
    assert identity(variable, tmp_path, {}) is None
