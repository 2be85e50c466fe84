"""Parsers of VirtualiZarr read files on servers as the scan does: its access, its checks, its count."""

import os

import h5py
import numpy as np
import obstore
import pytest
import xarray as xr

import icevirt
from icevirt.errors import ScanError, StorageError, UnsupportedError
from icevirt.objects.opening import open_source
from icevirt.objects.source_access import SourceAccess, grant_access
from icevirt.scan import values
from icevirt.scan.contract import ScannerOptions
from icevirt.scan.registry import combine
from icevirt_scanners.virtualizarr.scanner import VirtualizarrScanner

KEYS = icevirt.s3_credentials(access_key_id="who", secret_access_key="this-is-a-secret")


@pytest.fixture
def bucket(s3_proxy, monkeypatch, nemo_files):
    """Real files in a bucket of a server that no variable of the environment names."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    for number, path in enumerate(nemo_files):
        with open(path, "rb") as file:
            obstore.put(s3_proxy.direct.store(), f"month {number}.nc", file.read())
    return s3_proxy


def access(bucket):
    store = icevirt.s3_store(
        endpoint_url=bucket.place.endpoint,
        region="us-east-1",
        allow_http=True,
        force_path_style=True,
    )
    return {bucket.place.url: (store, KEYS)}


def url(bucket, number):
    return f"{bucket.place.url}/month%20{number}.nc"


def scan(url, parser, **options):
    with open_source(url) as source:
        how = ScannerOptions(strict=True, **options)
        scanned = combine(VirtualizarrScanner(parser).scan(source, how), how)
        held = {array.path: values.read(array, read_of(source)) for array in scanned.arrays}
        return scanned, held, source.requests


def read_of(source):
    def read(url, offset, length):
        assert url == source.file.url
        return source.read(offset, length)

    return read


@pytest.mark.parametrize("concat_dim", [None, "time_counter"])
def test_a_real_file_in_a_bucket_is_read_with_what_was_named(bucket, nemo_files, concat_dim):
    bucket.rules.requests.clear()
    with grant_access(SourceAccess.of(access(bucket))):
        scanned, held, requests = scan(url(bucket, 0), "HDFParser", concat_dim=concat_dim)
    with h5py.File(nemo_files[0]) as file:
        for path, found in held.items():
            np.testing.assert_array_equal(found, file[path][...], err_msg=path)
        assert "/tos" in held
    output = {etag for array in scanned.arrays for etag in array.references.locations.etag}
    assert output == {scanned.source.etag} != {""}
    assert not [f for f in scanned.findings if f.code == "unverifiable"]
    assert requests == len(bucket.rules.requests) < 20
    assert all("who/" in request.headers["authorization"] for request in bucket.rules.requests)
    if concat_dim:
        own = icevirt.scan_file(nemo_files[0], concat_dim=concat_dim)
        assert scanned.array("/time_counter").labels == own.array("/time_counter").labels
        assert all(a.digest for a in scanned.arrays if concat_dim not in a.dimension_names)


def test_a_web_server_is_read_too(http_server, sample_data):
    path = sample_data / "NEMO/nemo_1m_20150101-20150201_grid-T.nc"
    http_server.files.put("d/a.nc", path.read_bytes())
    scanned, held, _ = scan(f"{http_server.url}/d/a.nc", "HDFParser")
    with h5py.File(path) as file:
        np.testing.assert_array_equal(held["/tos"], file["tos"][...])
    assert set(scanned.array("/tos").references.locations.url) == {f"{http_server.url}/d/a.nc"}


def test_a_parser_finds_the_file_beside_its_own(http_server):
    """ENVI keeps the description of ``a.img`` in ``a.hdr``."""
    pixels = np.arange(24, dtype="<i2").reshape(2, 3, 4)
    http_server.files.put("d/a.img", pixels.tobytes())
    http_server.files.put(
        "d/a.hdr",
        (
            b"ENVI\nsamples = 4\nlines = 3\nbands = 2\nheader offset = 0\nfile type = ENVI Standard\n"
            b"data type = 2\ninterleave = bsq\nbyte order = 0\n"
        ),
    )
    _, held, _ = scan(f"{http_server.url}/d/a.img", "ENVIParser")
    (found,) = held.values()
    np.testing.assert_array_equal(found, pixels)


def test_a_parser_is_kept_from_other_directories(http_server):
    from virtualizarr.parsers import ENVIParser

    http_server.files.put("d/a.img", bytes(48))
    http_server.files.put("secret/a.hdr", b"ENVI\n")
    parser = ENVIParser(header_url=f"{http_server.url}/secret/a.hdr")
    with pytest.raises(UnsupportedError, match="own directory") as caught:
        scan(f"{http_server.url}/d/a.img", parser)
    assert caught.value.facts["target"].endswith("/secret/a.hdr")
    assert "/secret/a.hdr" not in {request.path for request in http_server.rules.requests}


def test_an_error_of_the_server_is_the_error_of_the_scan(bucket, monkeypatch):
    """h5py, which reads for the parser, would hide it.

    What it opened by then stays open inside libhdf5, which calls it back when its process ends, and
    that ends in a crash: so the scan has a process of its own here, as scans of a build have.
    """
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with (
                grant_access(SourceAccess.of(access(bucket))),
                open_source(url(bucket, 0)) as source,
            ):

                def failing(offset, length):
                    raise StorageError("the server went away", do="Try again.")

                monkeypatch.setattr(source, "read", failing)
                with pytest.raises(StorageError, match="went away"):
                    VirtualizarrScanner("HDFParser").scan(source, ScannerOptions())
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_what_is_no_such_file_is_an_error_of_the_parser(http_server):
    http_server.files.put("d/a.nc", b"nothing that HDF5 knows" * 100)
    with pytest.raises(ScanError, match="VirtualiZarr cannot read"):
        scan(f"{http_server.url}/d/a.nc", "HDFParser")


def test_a_build_on_spark_by_a_parser_of_files_in_a_bucket(bucket, spark, nemo_files, tmp_path):
    report = icevirt.build(
        f"{bucket.place.url}/*.nc",
        tmp_path / "repo",
        concat_dim="time_counter",
        scan_options={"scanner": "virtualizarr:HDFParser"},
        combine_options={"combine": "nested"},
        access=access(bucket),
        executor=spark,
    )
    assert not report.bad_files
    assert report.references.virtual >= 3
    (container,) = report.containers  # with the server, which the repository names
    assert container[0] == f"{bucket.place.url}/"
    session = icevirt.Repository.open(
        str(tmp_path / "repo"), authorize_virtual_chunk_access={container: KEYS}
    ).readonly_session("main")
    found = xr.open_dataset(session.store, engine="zarr", consolidated=False, decode_cf=False)
    held = [h5py.File(path)["tos"][...] for path in nemo_files]
    np.testing.assert_array_equal(found["tos"].values, np.concatenate(held))
