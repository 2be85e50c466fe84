"""Record the options behind each scan identity of a catalog."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from icevirt.catalog.parquet import telling_damage
from icevirt.storage.protocol import Storage

_SCANS = "scans"


def describe_scan(storage: Storage, identity: str, told: Mapping[str, Any]) -> None:
    """Write down what an identity in the names of parts stands for."""
    storage.put(f"{_SCANS}/{identity}.json", json.dumps(told, indent=1).encode())


def described_scans(storage: Storage) -> dict[str, Any]:
    """Return what the scans of a catalog were asked for, by identity."""
    return {
        info.path.rpartition("/")[2].removesuffix(".json"): _parse(
            storage.get(info.path), info.path
        )
        for info in storage.list(_SCANS)
    }


def _parse(raw: bytes, path: str) -> Any:
    with telling_damage(path):
        told = json.loads(raw)
        if not all(isinstance(told[kind], dict) for kind in ("options", "scanners")):
            raise TypeError("it does not describe a scan")
        return told
