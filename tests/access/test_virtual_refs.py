"""Virtual references set one by one, as a list, and as a box."""

import math
from datetime import UTC, datetime, timedelta, timezone

import icechunk
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from access.virtual import VALUES, make
from icevirt.access.virtual_refs import VirtualChunkSpec, checksum_parts, table_of_grid
from icevirt.errors import (
    InvalidInputError,
    LocationError,
    NaiveTimeError,
    NodeNotFoundError,
    StaleReferenceError,
)
from icevirt.model.strings import Strings
from icevirt.objects import locations as checks
from icevirt.objects.locations import check_locations


@pytest.fixture
def virtual(tmp_path):
    return make(tmp_path, skip=[0, 1, 2, 3])


@pytest.fixture
def session(virtual):
    return virtual.open().writable_session("main")


def one_by_one(store, url, **checksum):
    for n in range(4):
        store.set_virtual_ref(f"v/c/{n}/0", url, offset=4 + 40 * n, length=40, **checksum)


def as_list(store, url, checksum=None):
    specs = [
        VirtualChunkSpec([n, 0], url, 4 + 40 * n, 40, last_updated_at_checksum=checksum)
        for n in (2, 0, 3, 1)
    ]
    store.set_virtual_refs("v", specs)


def as_box(store, url, **checksum):
    offsets, lengths = 4 + 40 * np.arange(4), np.full(4, 40)
    store.set_virtual_refs_arr("v", (4, 1), [url] * 4, offsets, lengths, **checksum)


WAYS = [one_by_one, as_list, as_box]


@pytest.mark.parametrize("way", WAYS)
def test_both_clients_read_what_was_set(virtual, session, way):
    modified = datetime.fromtimestamp(virtual.source.stat().st_mtime, UTC)
    way(session.store, virtual.prefix + "source.bin", checksum=modified)
    session.commit("set")
    np.testing.assert_array_equal(zarr.open_array(virtual.store(), path="v", mode="r")[:], VALUES)
    repo = icechunk.Repository.open(
        icechunk.local_filesystem_storage(str(virtual.root)),
        None,
        {virtual.prefix: icechunk.credentials.LocalFileSystemAccess},
    )
    official = repo.readonly_session("main").store
    np.testing.assert_array_equal(zarr.open_array(official, path="v", mode="r")[:], VALUES)


@pytest.mark.parametrize("way", WAYS)
def test_a_checksum_that_was_set_is_enforced(virtual, session, way):
    way(session.store, virtual.prefix + "source.bin", checksum=datetime(2001, 1, 1, tzinfo=UTC))
    with pytest.raises(StaleReferenceError):
        session.store.get_sync("v/c/0/0")


@pytest.mark.parametrize("way", WAYS)
def test_a_read_only_store_takes_none(virtual, way):
    with pytest.raises(ValueError, match="read-only"):
        way(virtual.store(), virtual.prefix + "source.bin")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "location",
    ["file:///elsewhere/a.nc", "s3://bucket/a.nc", "{}../a.nc", "{}%2e%2e/a.nc", "{}a.nc?b", "x"],
)
def test_a_location_that_could_not_be_read_is_refused(virtual, session, way, location):
    with pytest.raises(InvalidInputError):
        way(session.store, location.format(virtual.prefix))
    assert not session.has_uncommitted_changes


def test_part_of_an_array_is_set_and_empty_locations_are_left_out(virtual, session):
    url = virtual.prefix + "source.bin"
    session.store.set_virtual_refs_arr(
        "v", (3, 1), [url, "", url], [44, 0, 124], [40, 0, 40], arr_offset=(1, 0)
    )
    shown = zarr.open_array(session.store, path="v", mode="r")[:]
    expected = np.full_like(VALUES, 7)
    expected[2:4], expected[6:8] = VALUES[2:4], VALUES[6:8]
    np.testing.assert_array_equal(shown, expected)


WRONG = {
    "no chunk's key": lambda s, u: s.set_virtual_ref("v/zarr.json", u, offset=0, length=1),
    "a negative offset": lambda s, u: s.set_virtual_ref("v/c/0/0", u, offset=-1, length=1),
    "an offset beyond any object": lambda s, u: s.set_virtual_ref(
        "v/c/0/0", u, offset=1 << 62, length=1
    ),
    "a length beyond any object": lambda s, u: s.set_virtual_ref(
        "v/c/0/0", u, offset=0, length=1 << 63
    ),
    "half a byte": lambda s, u: s.set_virtual_ref("v/c/0/0", u, offset=0.5, length=1),
    "no bytes": lambda s, u: s.set_virtual_ref("v/c/0/0", u, offset=0, length=0),
    "outside the grid": lambda s, u: s.set_virtual_ref("v/c/4/0", u, offset=0, length=1),
    "too few coordinates": lambda s, u: s.set_virtual_ref("v/c/0", u, offset=0, length=1),
    "an index of another length": lambda s, u: s.set_virtual_refs(
        "v", [VirtualChunkSpec([0], u, 0, 1)]
    ),
    "a negative index": lambda s, u: s.set_virtual_refs("v", [VirtualChunkSpec([-1, 0], u, 0, 1)]),
    "an index twice": lambda s, u: s.set_virtual_refs("v", [VirtualChunkSpec([0, 0], u, 0, 1)] * 2),
    "a box that is not filled": lambda s, u: s.set_virtual_refs_arr("v", (2, 1), [u], [0], [1]),
    "a box before the first chunk": lambda s, u: s.set_virtual_refs_arr(
        "v", (1, 1), [u], [0], [1], arr_offset=(-1, 0)
    ),
    "a box beyond all numbers": lambda s, u: s.set_virtual_refs_arr(
        "v", (1, 1), [u], [0], [1], arr_offset=(1 << 32, 0)
    ),
    "an offset of too few coordinates": lambda s, u: s.set_virtual_refs_arr(
        "v", (1, 1), [u], [0], [1], arr_offset=(0,)
    ),
    "a box of less than nothing": lambda s, u: s.set_virtual_refs_arr("v", (-1, -1), [u], [0], [1]),
    "no such array": lambda s, u: s.set_virtual_ref("w/c/0/0", u, offset=0, length=1),
    "a time before 1970": lambda s, u: s.set_virtual_ref(
        "v/c/0/0", u, offset=0, length=1, checksum=datetime(1960, 1, 1, tzinfo=UTC)
    ),
}


@pytest.mark.parametrize("attempt", WRONG.values(), ids=WRONG.keys())
def test_what_cannot_be_is_refused_and_nothing_is_changed(virtual, session, attempt):
    with pytest.raises((InvalidInputError, NodeNotFoundError)):
        attempt(session.store, virtual.prefix + "source.bin")
    assert not session.has_uncommitted_changes


def test_times_are_rounded_up_to_seconds_of_utc():
    whole = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
    assert checksum_parts(whole) == ("", int(whole.timestamp()))
    later = whole + timedelta(microseconds=1)
    assert checksum_parts(later) == ("", int(whole.timestamp()) + 1)
    assert checksum_parts(later.astimezone(timezone(timedelta(hours=5)))) == checksum_parts(later)
    with pytest.raises(NaiveTimeError, match="no time zone"):
        checksum_parts(datetime(2024, 5, 6))  # noqa: DTZ001
    assert checksum_parts(datetime(1970, 1, 1, tzinfo=UTC)) == (
        "",
        1,
    )  # 0 is a time that is not known
    assert checksum_parts("abc") == ("abc", 0)
    assert checksum_parts(None) == ("", 0)


def test_distinct_locations_with_codes_say_what_a_location_for_each_chunk_says(virtual):
    urls = [virtual.prefix + "source.bin", "", virtual.prefix + "other.bin"]
    codes = np.array([2, 0, 1, 0])
    offsets, lengths = 4 + 40 * np.arange(4), np.full(4, 40)
    tables = []
    for locations, coded in (([urls[code] for code in codes], None), (urls, codes)):
        store = virtual.open().writable_session("main").store
        store.set_virtual_refs_arr("v", (4, 1), locations, offsets, lengths, codes=coded)
        tables.append(store.refs_table("v"))
    assert tables[0].to_pylist() == tables[1].to_pylist()
    assert len(tables[0]) == 3


@pytest.mark.parametrize("coded", [False, True], ids=["a location each", "codes"])
def test_each_reference_can_carry_its_own_checksum(virtual, session, coded):
    url = virtual.prefix + "source.bin"
    moment = datetime(2001, 1, 1, tzinfo=UTC)
    session.store.set_virtual_refs_arr(
        "v",
        (3, 1),
        [url] * 3,
        [4, 44, 84],
        [40] * 3,
        codes=[0, 1, 2] if coded else None,
        checksum=[None, "1-2-3", moment],
    )
    rows = session.store.refs_table("v").to_pylist()
    assert [row["etag"] for row in rows] == [None, "1-2-3", None]
    assert [row["last_modified"] for row in rows] == [None, None, moment]


@pytest.mark.parametrize(
    "wrong",
    [{"codes": [0, 1]}, {"codes": [0, -1]}, {"codes": [0.0, 0.0]}, {"checksum": ["a", "b"]}],
    ids=str,
)
def test_codes_and_checksums_that_do_not_fit_the_locations_are_refused(virtual, session, wrong):
    urls = [virtual.prefix + "source.bin"]
    with pytest.raises(InvalidInputError):
        session.store.set_virtual_refs_arr("v", (2, 1), urls, [4, 44], [40] * 2, **wrong)


@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (3, 1, 2), (2, 0)], ids=str)
def test_a_box_is_given_in_c_order(shape):
    count, origin = math.prod(shape), tuple(range(7, 7 + len(shape)))
    numbers = np.arange(1, count + 1)
    table = table_of_grid(shape, ["s3://a/b"] * count, numbers, numbers, arr_offset=origin)
    places = np.indices(shape).reshape(len(shape), count).T + np.array(origin, np.int64)
    assert table.index.tolist() == places.tolist()
    assert table.offset.tolist() == numbers.tolist()


runs = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 4)), min_size=1, max_size=12)


@given(runs, st.booleans(), st.booleans())
def test_each_chunk_has_its_own_location_and_each_location_is_kept_once(drawn, distinct, copied):
    """Whether all differ or files come again, as the same strings or as equal ones."""
    urls = [f"s3://bucket/file-{n:03d}.nc" for n in range(31)]
    numbers = list(range(31)) if distinct else [n for n, times in drawn for _ in range(times)]
    given = [str(urls[n].encode(), "utf-8") if copied else urls[n] for n in numbers]
    ones = np.ones(len(given), np.uint64)
    table = table_of_grid((len(given),), given, ones, ones)
    held = list(table.locations.url)
    assert [held[source] for source in table.source] == given
    assert held == list(dict.fromkeys(given))


PARTS = st.text("f/.%?#\\\0@aé205c:", max_size=9)
SCHEMES = st.sampled_from(["file://", "file:///", "s3://", "s3://b/", "https://", "https://h/"])
URLS = st.builds("".join, st.tuples(SCHEMES, PARTS))


def is_refused(check, *given):
    try:
        check(*given)
    except LocationError:
        return True
    return False


def is_never_read(url):
    """Say whether a location below a container is refused where one looks at it alone."""
    is_local = url.startswith("file://")
    return is_refused(checks.check_local if is_local else checks.check_remote, url)


@given(st.lists(URLS, max_size=8), st.integers(1, 20))
def test_locations_are_refused_together_where_one_alone_would_be(urls, at_once):
    given = [url for url in urls if url.count("/") > 2 and not url.startswith("s3://b@")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checks, "_BYTES_AT_ONCE", at_once)
        together = is_refused(check_locations, Strings.of(given))
    assert together == any(map(is_never_read, given))


SECRETS = {
    "a signature": "https://host/data/a.nc?X-Amz-Signature=CANARY",
    "a fragment": "https://host/data/a.nc#CANARY",
    "a password": "https://user:CANARY@host/data/a.nc",
    "a token of a bucket": "s3://bucket/a.nc?sig=CANARY",
    "a named container": "vcc://name/a.nc?sig=CANARY",
    "a line end": "https://host/data/a\r\nX-Key: CANARY",
    "a way up": "https://host/data/../CANARY",
    "a backslash": "s3://bucket/a\\CANARY",
}


@pytest.mark.parametrize("url", SECRETS.values(), ids=SECRETS.keys())
def test_what_no_reader_follows_or_should_be_secret_is_not_stored(url):
    with pytest.raises(InvalidInputError) as caught:
        check_locations(Strings.of([url]))
    assert "CANARY" not in str(caught.value) or "?" not in url


def test_usual_keys_with_signs_are_stored():
    keys = ["s3://bucket/a@b/c d.nc", "abfs://box@account.dfs.core.windows.net/a.nc"]
    keys += ["https://host/a%20b/.hidden", "gs://bucket/é~$&'()*+,;=:.nc", "memory://x/y"]
    table = table_of_grid((len(keys),), keys, [0] * len(keys), [1] * len(keys))
    assert [*table.locations.url] == keys
    check_locations(table.locations.url)
