"""What the engine asks a server of files for: one plan for each selection, in few requests."""

import threading

import numpy as np
import pytest
import xarray as xr

from access.columns.stored import Stored
from access.remote.hosts import Server
from access.remote.objects import CHUNK, refer, values
from icevirt.model.config.containers import ObjectStoreConfig
from servers.faults import Rules
from servers.ranges import Files
from servers.serving import served

COUNT = 64
NEAR, FAR = 4 * CHUNK, 40_000  # from one chunk to the next: a gap that is read, and one that is not


def stored(server, root, step):
    """Put chunks at some distance into one file; return the array that refers to them."""
    body = np.zeros((COUNT, step), np.uint8)
    body[:, :CHUNK] = values(COUNT)
    server.files.put("data/a.bin", body.tobytes())
    made = refer(
        root, server.url + "/data/", store=ObjectStoreConfig("http", {}), chunks=COUNT, step=step
    )
    return Stored(session=made.session(), values=values(COUNT))


def ranges(server):
    """Return the first byte and the length of each request so far, in order."""
    found = []
    for request in server.rules.requests:
        assert request.method == "GET"
        first, _, last = request.headers["range"].removeprefix("bytes=").partition("-")
        found.append((int(first), int(last) - int(first) + 1))
    return sorted(found)


@pytest.mark.parametrize("step", [CHUNK, NEAR])
def test_chunks_that_lie_near_one_another_are_one_request(trusted, tmp_path, step):
    array = stored(trusted, tmp_path / "repo", step)
    trusted.rules.clear()
    np.testing.assert_array_equal(array.variable()[8:40], array.values[8:40])
    assert ranges(trusted) == [(8 * step, 31 * step + CHUNK)]


def test_chunks_that_lie_apart_are_requested_by_themselves_and_nothing_else_is(trusted, tmp_path):
    array = stored(trusted, tmp_path / "repo", FAR)
    trusted.rules.clear()
    np.testing.assert_array_equal(array.variable()[[50, 3, 9]], array.values[[50, 3, 9]])
    assert ranges(trusted) == [(at * FAR, CHUNK) for at in (3, 9, 50)]


def test_points_are_read_chunk_by_chunk_and_no_chunk_twice(trusted, tmp_path):
    array = stored(trusted, tmp_path / "repo", FAR)
    trusted.rules.clear()
    rows, columns = [7, 60, 7, 7, 60], [0, 5, 255, 0, 9]
    key = {"d0": xr.Variable("p", rows), "d1": xr.Variable("p", columns)}
    np.testing.assert_array_equal(array.variable().isel(key), array.values[rows, columns])
    assert ranges(trusted) == [(at * FAR, CHUNK) for at in (7, 60)]


def test_requests_wait_side_by_side(tmp_path):
    files, rules, together = Files(), Rules(), threading.Barrier(8)

    def answer(request):
        together.wait(20)  # for seven others
        return files.answer(request)

    with served(answer, rules) as url:
        array = stored(Server(url, files, rules), tmp_path / "repo", FAR)
        np.testing.assert_array_equal(array.variable()[:], array.values)
    assert not together.broken
