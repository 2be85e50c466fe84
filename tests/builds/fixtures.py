"""An archive of a few days that is scanned in this process, and a place for its catalog."""

import contextlib

import pytest

from builds.support import without_spark, write_days
from icevirt.api import scan as scan_module


@pytest.fixture
def days(tmp_path, monkeypatch):
    without_spark(monkeypatch)
    monkeypatch.setattr(scan_module, "spark_or_local", lambda *_, **__: contextlib.nullcontext())
    return write_days(tmp_path / "archive")


@pytest.fixture
def catalog(tmp_path):
    return str(tmp_path / "catalog")
