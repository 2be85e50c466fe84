"""What becomes of a variable is a person's choice, and what is left out is told."""

import json

import h5py
import netCDF4
import numpy as np
import pytest
import zarr

import icevirt
from builds.support import official
from icevirt.api.choices import scanner_options
from icevirt.api.dataset.records import identity_of
from icevirt.cli.main import app
from icevirt.errors import InvalidInputError, UnsupportedError
from icevirt.model.chunks import ChunkType
from icevirt.scan.options import ScanOptions
from scanners.kerchunk.kerchunk_files import references
from scanners.materialise import materialise

DATA = np.arange(240_000, dtype="<i4").reshape(100, 2400)


@pytest.fixture
def path(tmp_path):
    """A file with plain variables, one of an odd filter and two that zarr cannot say."""
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("plain", data=DATA, chunks=(10, 2400), compression="gzip")
        file["block"] = DATA
        file.create_dataset("odd", data=DATA, chunks=(10, 2400), compression="lzf")
        file["small"] = np.arange(10)
        file.create_dataset("raw/lists", shape=(2,), dtype=h5py.vlen_dtype("i4"))
        file["raw/odd"] = np.zeros(2, [("a", "i4", (3,))])
        file["raw/good"] = np.arange(3)
    return path


def kinds(array):
    return {ChunkType(kind).name for kind in array.references.kind.tolist()}


def printed(scanned, code="left-out"):
    return {each.path: each for each in scanned.findings if each.code == code}


@pytest.mark.parametrize("policy", ["skip", {"*": "skip"}, {"/raw/*": "skip"}])
def test_what_cannot_be_represented_is_left_out_with_a_warning(path, policy):
    with pytest.raises(UnsupportedError, match='policy="skip"'):
        icevirt.scan_file(path)
    scanned = icevirt.scan_file(path, scan_options={"variable_policy": policy})
    found = printed(scanned)
    assert set(found) == {"/raw/lists", "/raw/odd"} == set(scanned.left_out)
    assert {each.severity for each in found.values()} == {"warning"}
    assert "skip" in found["/raw/lists"].message
    names = {array.path for array in scanned.arrays}
    assert names == {"/plain", "/block", "/odd", "/small", "/raw/good"}


def test_the_first_pattern_that_fits_counts(path):
    with pytest.raises(UnsupportedError) as caught:
        icevirt.scan_file(path, scan_options={"variable_policy": {"lists": "fail", "*": "skip"}})
    assert set(caught.value.facts["variables"]) == {"/raw/lists"}
    scanned = icevirt.scan_file(
        path,
        scan_options={
            "variable_policy": {"odd": "skip", "*": "fail", "lists": "skip"},
            "source_group": "/raw",
            "drop_variables": "lists",
        },
    )
    assert set(printed(scanned)) == {"/odd"}


def test_a_variable_beyond_the_budget_is_left_out_where_it_may_be(path):
    policy = {"/raw/*": "skip", "odd": "skip"}
    scanned = icevirt.scan_file(
        path, scan_options={"variable_policy": policy, "max_native_bytes_per_file": 1000}
    )
    assert "/odd" in printed(scanned)
    assert "too large" in printed(scanned)["/odd"].message
    with pytest.raises(UnsupportedError, match="too large"):
        icevirt.scan_file(
            path,
            scan_options={"variable_policy": {"/raw/*": "skip"}, "max_native_bytes_per_file": 1000},
        )


@pytest.mark.parametrize("name", ["plain", "block", "odd"])
def test_what_is_to_be_stored_is_stored_in_chunks(path, name):
    scanned = icevirt.scan_file(
        path, scan_options={"variable_policy": {f"/{name}": "native", "*": "skip"}}
    )
    array = scanned.array(name)
    assert kinds(array) == {"inline"}  # until it is written; the threshold decides then
    assert f"/{name}" in printed(scanned, "stored-natively")
    np.testing.assert_array_equal(materialise(array), DATA)


def test_small_variables_are_stored_in_one_chunk_and_large_ones_are_refused(path):
    array = icevirt.scan_file(
        path, scan_options={"variable_policy": {"block": "inline", "*": "skip"}}
    ).array
    assert kinds(array("block")) == {"inline"}
    assert len(array("block").references) == 1
    np.testing.assert_array_equal(materialise(array("block")), DATA)
    with h5py.File(path, "a") as file:
        file["large"] = np.zeros(2**18 + 1, "f4")
    with pytest.raises(UnsupportedError, match=r"policy .inline. has more"):
        icevirt.scan_file(path, scan_options={"variable_policy": {"large": "inline", "*": "skip"}})


@pytest.mark.parametrize("name", ["plain", "block", "small", "/raw/good"])
def test_what_must_be_referenced_is(path, name):
    scanned = icevirt.scan_file(
        path, scan_options={"variable_policy": {name: "reference", "*": "skip"}}, concat_dim="none"
    )
    assert kinds(scanned.array(name)) == {"virtual"}


def test_what_must_be_referenced_and_cannot_be_is_an_error_that_says_why(path):
    with pytest.raises(UnsupportedError, match="cannot be referenced") as caught:
        icevirt.scan_file(
            path, scan_options={"variable_policy": {"/odd": "reference", "*": "skip"}}
        )
    assert caught.value.facts["variable"] == "/odd"
    assert caught.value.facts["cause"].startswith("zarr has no codec of lzf")


@pytest.mark.parametrize(
    "policy", ["never", {"a": "never"}, {"": "skip"}, 5, {1: "skip"}, ["skip"]]
)
def test_what_is_no_policy_is_an_error_that_lists_them(path, policy):
    with pytest.raises(InvalidInputError, match="fail, skip, reference, native, inline"):
        icevirt.scan_file(path, scan_options={"variable_policy": policy})


def test_a_name_that_is_not_there_is_an_error_and_a_pattern_is_none(path):
    with pytest.raises(InvalidInputError, match="no such variable"):
        icevirt.scan_file(path, scan_options={"variable_policy": {"lost": "native", "*": "skip"}})
    assert icevirt.scan_file(
        path, scan_options={"variable_policy": {"/lost/*": "native", "*": "skip"}}
    ).arrays


@pytest.mark.parametrize("unlimited", [False, True], ids=["fixed", "records"])
def test_netcdf_3_has_the_same_policies(tmp_path, unlimited):
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w", format="NETCDF3_CLASSIC") as file:
        file.createDimension("t", None if unlimited else 6)
        file.createDimension("x", 100_000)
        file.createVariable("d", "i4", ("t", "x"))[:] = np.arange(600_000).reshape(6, -1)
        file.createVariable("other", "f8", ("t", "x"))[:] = 0
        file.createVariable("small", "i2", ("t",))[:] = range(6)

    def scanned(policy, name):
        found = icevirt.scan_file(path, scan_options={"variable_policy": {name: policy}})
        return found, found.array(name)

    found, stored = scanned("native", "d")
    assert kinds(stored) == {"inline"}
    assert "/d" in printed(found, "stored-natively")
    np.testing.assert_array_equal(materialise(stored), np.arange(600_000).reshape(6, -1))
    _, one = scanned("inline", "small")
    assert len(one.references) == 1
    assert kinds(one) == {"inline"}
    assert materialise(one).tolist() == [*range(6)]
    for name in ("d", "small"):
        assert kinds(scanned("reference", name)[1]) == {"virtual"}
    with pytest.raises(UnsupportedError, match=r"policy .inline. has more"):
        scanned("inline", "d")


def test_a_scanner_that_cannot_store_says_so(tmp_path):
    (tmp_path / "bytes").write_bytes(bytes(96))
    held = references(str(tmp_path / "bytes"))
    (tmp_path / "a.json").write_text(json.dumps({"version": 1, "refs": held}))
    with pytest.raises(UnsupportedError, match="'kerchunk' cannot store the values"):
        icevirt.scan_file(
            tmp_path / "a.json",
            scan_options={
                "variable_policy": {"v": "native"},
                "allow_references_to": [tmp_path.as_uri() + "/"],
            },
        )


def test_the_policy_is_part_of_a_builds_identity():
    plain = identity_of(scanner_options(ScanOptions()))
    assert identity_of(scanner_options(ScanOptions(variable_policy="fail"))) == plain
    assert identity_of(scanner_options(ScanOptions(variable_policy="skip"))) != plain
    one, other = {"a": "skip", "b": "fail"}, {"b": "fail", "a": "skip"}
    assert identity_of(scanner_options(ScanOptions(variable_policy=one))) != identity_of(
        scanner_options(ScanOptions(variable_policy=other))
    )


@pytest.mark.ci
def test_a_build_and_its_plan_tell_what_was_left_out(path, tmp_path, in_process):
    repo, policy = str(tmp_path / "repo"), {"/raw/*": "skip", "block": "native"}
    plan = icevirt.plan([str(path)], concat_dim=None, scan_options={"variable_policy": policy})
    assert any(text.startswith("/raw/lists: left out") for text in plan.notes)
    report = icevirt.build(
        [str(path)], repo, concat_dim=None, scan_options={"variable_policy": policy}
    )
    assert any(text.startswith("/raw/lists: left out") for text in report.findings)
    root = zarr.open_group(official(repo).readonly_session("main").store, mode="r")
    np.testing.assert_array_equal(root["block"][...], DATA)
    np.testing.assert_array_equal(root["plain"][...], DATA)
    assert sorted(root["raw"]) == ["good"]
    containers = report.containers
    assert icevirt.verify(repo, authorize_virtual_chunk_access=containers, full=True).ok
    again = icevirt.build(
        [str(path)], repo, concat_dim=None, scan_options={"variable_policy": policy}
    )
    assert again.snapshot_id == report.snapshot_id


@pytest.mark.ci
def test_the_command_line_takes_policies(path):
    from typer.testing import CliRunner

    run = CliRunner()
    assert run.invoke(app, ["scan", str(path)]).exit_code
    for given in (
        ["--variable-policy", "skip"],
        ["--variable-policy", "odd=reference", "--variable-policy", "skip"],
    ):
        result = run.invoke(app, ["scan", str(path), *given])
        assert (result.exit_code == 0) is (len(given) == 2), result.output
        assert ("left out" in result.output) is (len(given) == 2)
