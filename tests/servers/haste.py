"""Retries of requests as often as users' programs do them, with pauses that cost a test no time."""

from datetime import timedelta

import pytest

from icevirt.connect import retry, stores


def hasten(monkeypatch: pytest.MonkeyPatch, **retries: int) -> None:
    """Let this process wait shortly; ``retries`` are options of the library's own retries."""
    pauses = {"init_backoff": timedelta(milliseconds=2), "max_backoff": timedelta(milliseconds=5)}
    monkeypatch.setattr(retry, "_FIRST_PAUSE", 0.005)
    monkeypatch.setattr(retry, "_LONGEST_PAUSE", 0.01)
    quickly = {"backoff": {**pauses, "base": 3}, **retries}
    monkeypatch.setattr(stores, "_RETRIES", stores._RETRIES | quickly)
