"""Files on servers are opened before their turn; each error stays with its file."""

import time
from collections import Counter

import h5py
import numpy as np
import pytest

from icevirt.archive.sources import SourceFile
from icevirt.errors import NotFoundError
from icevirt.objects.opening import open_source
from icevirt.scan.contract import ScannerOptions
from icevirt.tasks.scan_file import AHEAD, Prefetcher, attempt, opening_ahead, prefetching


@pytest.fixture
def far(http_server, tmp_path):
    """Files on a server, of which the third is not there."""
    for number in range(20):
        path = tmp_path / f"{number}.h5"
        with h5py.File(path, "w") as file:
            file["d"] = np.arange(number)
        if number != 3:
            http_server.files.put(f"data/{number}.h5", path.read_bytes())
    return [f"{http_server.url}/data/{number}.h5" for number in range(20)]


def asked(server):
    """Return which files the server was asked for."""
    return {request.target for request in server.rules.requests}


def test_the_next_files_are_asked_for_while_one_is_scanned(far, http_server):
    files = [SourceFile(url=url, size=0) for url in far]
    with Prefetcher(files) as ahead, ahead.open(far[0]) as source:
        assert source.read(0, 4) == b"\x89HDF"
        until = time.monotonic() + 20
        while len(asked(http_server)) < AHEAD + 1 and time.monotonic() < until:
            time.sleep(0.01)
        assert len(asked(http_server)) == AHEAD + 1
        assert ahead.open(far[19]).file.size > 0  # out of turn


def test_all_files_are_scanned_and_the_missing_one_is_reported(far, http_server):
    listed = []
    for url in far:
        try:
            with open_source(url) as source:
                listed.append(source.file)
        except NotFoundError:
            listed.append(SourceFile(url=url, size=1))
    with opening_ahead() as before, prefetching(listed) as ahead:
        before.begin(listed[:5])  # which the scan takes over
        outcomes = [attempt(file, ScannerOptions(), ahead.open) for file in listed]
    shapes = [outcome.scanned and outcome.scanned.array("d").shape for outcome in outcomes]
    assert shapes == [None if number == 3 else (number,) for number in range(20)]
    assert isinstance(outcomes[3].error, NotFoundError)
    assert [outcome.requests for outcome in outcomes] == [number != 3 for number in range(20)]
    times = Counter(request.target for request in http_server.rules.requests)
    assert set(times.values()) == {2}  # when it was listed, and once more


def test_local_files_are_opened_when_it_is_their_turn(tmp_path):
    path = tmp_path / "a.h5"
    path.write_bytes(b"x")
    with Prefetcher([SourceFile(url=path.as_uri(), size=1)] * 3) as ahead:
        assert not ahead._opening
        with ahead.open(path.as_uri()) as source:
            assert source.read(0, 9) == b"x"
        assert not ahead._opening
