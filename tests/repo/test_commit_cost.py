"""What a small commit costs, in counts that do not depend on the machine.

A limit is a tenth above what was counted. ``bench/commit_history.py`` measures the times.
"""

import hashlib
import os
import sys
from collections import Counter

import pytest

from icevirt.model.chunks import ChunkTable
from icevirt.repo.repository import Repository
from icevirt.storage import durable, local
from icevirt.wire.manifests import manifest
from icevirt.wire.repo_info.snapshot_records import SnapshotRecords
from repo.support import array_json

OPERATIONS = {  # files: manifest, log, snapshot, backup, repo; directories: one for each
    "open": 15,
    "write": 5,
    "fsync": 10,
    "link": 5,
    "rename": 1,
    "unlink": 0,
    "mkdir": 0,
}


class Counting:
    """The module `os`, which counts calls."""

    def __init__(self, counts):
        self._counts = counts

    def __getattr__(self, name):
        self._counts[name] += 1
        return getattr(os, name)


@pytest.fixture
def grown(tmp_path):
    """A repository and how to commit once to it; it has had some commits."""
    repo = Repository.create(str(tmp_path / "repo"))
    session = repo.writable_session("main")
    session.add_array("/a", array_json(), ChunkTable.empty(1))
    session.commit("an array")

    values = iter(range(1000))

    def commit(count=1, counted=None):
        for _ in range(count):
            session = repo.writable_session("main")
            session.set_chunk("/a", (1,), next(values).to_bytes(48))
            sys.setprofile(counted)
            try:
                session.commit("a chunk")
            finally:
                sys.setprofile(None)

    commit(20)  # what is used often is compiled
    return commit


def calls_of(commit):
    """Return how many functions of Python the second of two commits calls."""
    counts = Counter()

    def counted(frame, event, arg):
        counts[event] += 1

    commit()
    commit(counted=counted)
    return counts["call"]


def test_a_commit_calls_few_functions_however_long_the_history_is(grown):
    few = calls_of(grown)
    grown(60)
    assert few <= 1350
    assert calls_of(grown) <= 1.1 * few


def test_a_commit_does_few_operations_on_files(grown, monkeypatch):
    counts = Counter()
    monkeypatch.setattr(durable, "os", Counting(counts))
    monkeypatch.setattr(local, "os", Counting(counts))
    grown()
    assert {name: counts[name] for name in OPERATIONS} == OPERATIONS


def test_a_commit_hashes_no_state_twice_and_decodes_nothing_that_it_wrote(grown, monkeypatch):
    hashed, real = [], hashlib.blake2b

    def counted(data=b"", **named):
        hashed.append(bytes(data))
        return real(data, **named)

    def refused(raw):
        raise AssertionError("a manifest was decoded")

    monkeypatch.setattr(local.hashlib, "blake2b", counted)
    monkeypatch.setattr(manifest, "decode", refused)
    grown()
    assert hashed
    assert len(hashed) == len(set(hashed))


def test_a_commit_encodes_no_snapshot_of_the_history(grown, monkeypatch):
    encoded, real = [], SnapshotRecords.of

    def counted(columns):
        encoded.append(len(columns))
        return real(columns)

    monkeypatch.setattr(SnapshotRecords, "of", counted)
    grown(3)
    assert not encoded  # its record is made from a template
