"""Pieces of a huge file in a bucket, and pieces that end the process that scans them."""

from pathlib import Path

import pytest
import xarray as xr

import icevirt
from api.sources.test_object_stores import access_to, below, manifests, uploaded
from builds.support import assert_same_dataset, expected_dataset, output
from grouping import grouped
from icevirt.catalog.parts import ScanNotes
from icevirt.scan import registry
from long_forms import cases
from tasks.stub_scanner import install
from tasks.test_pieces import counted, in_pieces, write_many

pytestmark = [pytest.mark.ci, pytest.mark.slow, pytest.mark.usefixtures("in_process")]

SHARED = """
    import os, signal, time
    import numpy as np
    from icevirt.archive.scanned import ScannedFile, ScannedGroup, Weight

    def crash():
        os.kill(os.getpid(), signal.SIGSEGV)

    DEEDS = {
        "nothing": lambda: None,
        "crash": crash,
        "take 3 s": lambda: time.sleep(3),
        "want 600 MiB": lambda: np.ones(600 << 20, np.uint8),
    }

    class StubScanner:
        name, version = "stub", "1"

        def accepts(self, head):
            return head.startswith(b"STUB ")

        def deeds(self, source):
            deeds = source.read(5, 100).decode().split(", ")
            return {f"/v{number}": deed for number, deed in enumerate(deeds)}

        def outline(self, source, options):
            return tuple(Weight(path=path, cost=1 << 24) for path in self.deeds(source))

        def scan(self, source, options):
            mine = {path: deed for path, deed in self.deeds(source).items() if options.wants(path)}
            with open(source.file.url.removeprefix("file://") + ".log", "a") as log:
                log.write(f"{'whole' if options.share is None else ' '.join(mine)}\\n")
            for deed in mine.values():
                DEEDS[deed]()
            root = ScannedGroup(path="/")
            return ScannedFile(
                source=source.file, scanner="stub", scanner_version="1", groups=(root,), arrays=()
            )
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Directory of an installed scanner that knows shares."""
    return install(tmp_path_factory.mktemp("shared") / "site", SHARED)


@pytest.fixture
def stub(site, monkeypatch):
    """Let it be there, and scan all files in children."""
    monkeypatch.syspath_prepend(site)
    registry.scanners.cache_clear()
    monkeypatch.setattr(ScanNotes, "has_died_in", lambda self, parts: True)
    yield
    registry.scanners.cache_clear()


def rows(catalog):
    found = icevirt.catalog_view(catalog).files().read_all().to_pylist()
    return {Path(row["url"]).stem: row["status"] for row in found}


DEEDS = {
    "crash": ("crashed", None),
    "take 3 s": ("timeout", {"file_timeout": 60}),
    "want 600 MiB": ("oom", {"file_timeout": 60, "file_memory": "2GiB"}),
}
WHICH = [(deed, is_last) for deed in DEEDS for is_last in (True, False)]
FEW = [("crash", True), ("take 3 s", False), ("want 600 MiB", True)]


@pytest.mark.parametrize(("deed", "last"), cases(WHICH, *FEW))
def test_a_piece_that_ends_its_process_makes_the_file_bad_and_no_other(stub, tmp_path, deed, last):
    """It is not tried again with the whole file, which would end the same way."""
    status, enough = DEEDS[deed]
    bad, good = tmp_path / "bad.stub", tmp_path / "good.stub"
    bad.write_text("STUB " + ", ".join(["nothing"] * 2 + [deed] if last else [deed, "nothing"]))
    good.write_text("STUB nothing, nothing")
    catalog = str(tmp_path / "catalog")
    little = {"file_timeout": 1.5, "file_memory": "300MiB"}

    def scan(**limits):
        with in_pieces(3 if last else 2):
            return icevirt.scan_files(
                [bad, good], catalog, concat_dim="time", **grouped(limits, max_bad_files=1)
            )

    report = scan(**little)
    assert [Path(each.url).stem for each in report.bad_files] == ["bad"]
    assert rows(catalog) == {"bad": status, "good": "ok"}
    assert "whole" not in Path(f"{bad}.log").read_text()
    assert not (tmp_path / "catalog" / "pieces").exists()
    assert scan(**little).files_scanned == 0
    if enough is not None:
        assert scan(**{**little, **enough}).files_scanned == 1
        assert rows(catalog) == {"bad": "ok", "good": "ok"}


def without_costs(tables):
    """Leave out what the scan asked the server for: every piece reads the headers."""
    kept = {n: v for n, v in tables["files"].items() if n not in ("requests", "bytes_fetched")}
    return tables | {"files": kept}


@pytest.mark.servers
def test_pieces_in_a_bucket_make_what_one_task_makes_on_disk(s3, tmp_path, monkeypatch):
    """Source, catalog with its pieces, and repository lie in it; nothing is left of pieces."""
    path = write_many(tmp_path / "many.nc")
    uploaded(s3, [path])
    access, credentials = access_to(s3)
    source = f"{s3.url}/data/many.nc"
    how = {"concat_dim": "time", "access": access}
    icevirt.scan_files(source, tmp_path / "whole", **grouped(how))
    noted = counted(monkeypatch)
    catalog, repo = below(s3, "catalog").icevirt(), below(s3, "repo").icevirt()
    with in_pieces(5):
        report = icevirt.scan_files(source, catalog, **grouped(how))
    assert report.files_scanned == 1
    assert sorted(noted) == [(number, 5) for number in range(5)]
    assert without_costs(output(catalog)) == without_costs(output(tmp_path / "whole"))
    assert not list(catalog.list("pieces"))
    built = icevirt.build(source, repo, catalog=catalog, **grouped(how))
    on_disk = icevirt.local_filesystem_storage(str(tmp_path / "repo"))
    icevirt.build(source, on_disk, catalog=str(tmp_path / "whole"), **grouped(how))
    assert manifests(repo) == manifests(on_disk)
    authorize = dict.fromkeys(built.containers, credentials)
    assert_same_dataset(
        xr.open_dataset(repo, engine="icevirt", authorize_virtual_chunk_access=authorize),
        expected_dataset([path], "time").load(),
    )
