"""What clients of catalogs save is a list of files: granules of CMR, catalogs of intake-ESM."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xarray as xr

import icevirt
from builds.support import assert_same_dataset, expected_dataset, write_days
from icevirt.api.sources.inputs import Inputs
from icevirt.errors import IcevirtError, InvalidInputError
from icevirt.objects.source_lists.formats import rows_of

EXTERNAL, DIRECT = "https://archive.test/a/{}", "s3://archive-protected/a/{}"
NAMES = ("day1.nc", "day2.nc")
FEED = "http://esipfed.org/ns/fedsearch/1.1/"


def granule(name, external=EXTERNAL, direct=DIRECT, direct_type="GET DATA VIA DIRECT ACCESS"):
    """Return a granule as earthaccess 0.19 holds it: UMM-G and what CMR says about it."""
    links = [
        {"URL": external.format(name), "Type": "GET DATA", "MimeType": "application/x-netcdf"},
        {"URL": direct.format(name), "Type": direct_type},
        {"URL": EXTERNAL.format(f"{name}.md5"), "Type": "EXTENDED METADATA"},
        {"URL": EXTERNAL.format(f"{name}.md5"), "Type": "GET DATA"},
        {"URL": f"https://opendap.test/{name}", "Type": "USE SERVICE API"},
    ]
    return {
        "meta": {"concept-type": "granule", "native-id": name, "provider-id": "TEST"},
        "umm": {"GranuleUR": name, "RelatedUrls": links},
    }


def entry(name):
    """Return a granule as the older feed has it."""
    links = [
        {"rel": f"{FEED}data#", "href": EXTERNAL.format(name), "type": "application/x-netcdf"},
        {"rel": f"{FEED}s3#", "href": DIRECT.format(name)},
        {"rel": f"{FEED}browse#", "href": EXTERNAL.format("x.png")},
        {"rel": f"{FEED}data#", "href": "https://archive.test/about/", "inherited": True},
    ]
    return {"title": name, "links": links}


FORMS = {
    "earthaccess": ("l.json", [granule(name) for name in NAMES]),
    "UMM-G of CMR": ("l.json", {"hits": 2, "took": 9, "items": [granule(n) for n in NAMES]}),
    "the older feed": ("l.json", {"feed": {"title": "x", "entry": [entry(n) for n in NAMES]}}),
    "both addresses called data": (
        "l.json",
        [granule(name, direct_type="GET DATA") for name in NAMES],
    ),
    "UMM-G alone": ("l.json", [granule(name)["umm"] for name in NAMES]),
    "a granule a line": ("l.jsonl", [granule(name) for name in NAMES]),
}


def save(folder, name, found):
    path = folder / name
    lines = map(json.dumps, found if name.endswith("l") else [found])
    path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize(("name", "found"), FORMS.values(), ids=FORMS.keys())
def test_granules_are_listed_at_the_address_that_is_asked_for(name, found, tmp_path):
    path = str(save(tmp_path, name, found))
    assert [row.url for row in rows_of(path)] == [EXTERNAL.format(each) for each in NAMES]
    assert [row.url for row in rows_of(path, "direct")] == [DIRECT.format(each) for each in NAMES]


LINKS = [EXTERNAL.format(name) for name in NAMES]


@pytest.mark.parametrize("found", [LINKS, [[each] for each in LINKS]], ids=["flat", "by granule"])
def test_links_of_granules_are_a_list(found, tmp_path):
    path = save(tmp_path, "l.json", found)
    assert [row.url for row in rows_of(str(path))] == LINKS


BAD = {
    "no data": ({"umm": {"GranuleUR": "g7", "RelatedUrls": []}}, None, "has 0 files.*'g7'"),
    "no bucket": (granule("a.nc", direct="https://b.test/{}"), "direct", "has 0 files.*external"),
    "two files": (granule("a.nc", direct="https://b.test/{}"), None, "has 2 files.*b.test/a.nc"),
    "another word": (granule("a.nc"), "s3", "no such access.*direct"),
    "no answers": ({"hits": 0, "items": []}, None, "is empty"),
    "an empty feed": ({"feed": {"entry": []}}, None, "is empty"),
    "a list with a hole": (["a.nc", None], None, "none of the lists"),
    "another document": ({"items": [{"a": 1}]}, None, "none of the lists"),
}


@pytest.mark.parametrize(("found", "asset", "output"), BAD.values(), ids=BAD.keys())
def test_granules_that_do_not_say_which_file_are_refused(found, asset, output, tmp_path):
    path = save(tmp_path, "l.json", found)
    with pytest.raises(InvalidInputError, match=output) as caught:
        Inputs(f"@{path}", asset=asset)
    assert str(path) in str(caught.value)


@pytest.mark.servers
def test_granules_are_built_as_clients_return_them(http_server, tmp_path, in_process):
    days = write_days(tmp_path / "archive")
    for day in days:
        http_server.files.put(f"a/{Path(day).name}", Path(day).read_bytes())
    granules = [granule(Path(day).name, f"{http_server.url}/a/{{}}") for day in days]
    for number, sources in enumerate((granules, (each for each in granules))):
        repo = tmp_path / f"repo{number}"
        assert icevirt.build(sources, repo, concat_dim="time").references.virtual
        with xr.open_dataset(repo, engine="icevirt") as ours:
            assert_same_dataset(ours, expected_dataset(days, "time"))
    with pytest.raises(InvalidInputError, match=r"neither an item of STAC nor a granule"):
        icevirt.build([{"path": days[0]}], tmp_path / "none", concat_dim="time")


def esm(table, **assets):
    """Return a catalog as intake-ESM 2025.12.12 saves it."""
    return {
        "esmcat_version": "0.1.0",
        "attributes": [{"column_name": "variable_id", "vocabulary": ""}],
        "assets": {"column_name": "where", "format": "netcdf", "format_column_name": None} | assets,
        "id": "days",
        **table,
    }


def inside(rows, _folder):
    return {"catalog_dict": rows}


def as_csv(rows, folder):
    lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    (folder / "days.csv").write_text("\n".join(lines))
    return {"catalog_file": "days.csv"}


def as_parquet(rows, folder):
    pq.write_table(pa.Table.from_pylist(rows), folder / "days.parquet")
    return {"catalog_file": (folder / "days.parquet").as_uri()}


@pytest.mark.parametrize("save_table", [inside, as_csv, as_parquet])
def test_a_catalog_of_intake_esm_stands_for_its_files(save_table, tmp_path, in_process):
    days = write_days(tmp_path / "archive")
    # columns that lists would have a meaning for are the catalog's own
    rows = [{"variable_id": "tas", "where": day, "size": 1, "url": "x"} for day in days]
    path = save(tmp_path, "l.json", esm(save_table(rows, tmp_path)))
    icevirt.build(f"@{path}", tmp_path / "repo", concat_dim="time")
    with xr.open_dataset(tmp_path / "repo", engine="icevirt") as ours:
        assert_same_dataset(ours, expected_dataset(days, "time"))


CATALOGS = {
    "arrays of a server": (esm({"catalog_dict": []}, format="opendap"), "serves arrays"),
    "no table": (esm({}), "catalog_type"),
    "a table that is not there": (esm({"catalog_file": "none.csv"}), "no such list"),
    "a row without its file": (esm({"catalog_dict": [{"path": "a.nc"}]}), "line=1"),
}


@pytest.mark.parametrize(("found", "output"), CATALOGS.values(), ids=CATALOGS.keys())
def test_catalogs_that_name_no_files_are_refused(found, output, tmp_path):
    with pytest.raises(IcevirtError, match=output):
        Inputs(f"@{save(tmp_path, 'l.json', found)}")


@pytest.mark.servers
@pytest.mark.parametrize(
    ("spelled", "output"), [(str, "no such file"), (Path.as_uri, "may be read")]
)
def test_a_catalog_of_a_server_names_no_table_of_this_machine(
    spelled, output, http_server, tmp_path
):
    table = tmp_path / "private.csv"
    table.write_text("where\n/a.nc\n")
    document = esm({"catalog_file": spelled(table)})
    http_server.files.put("l.json", json.dumps(document).encode())
    with pytest.raises(IcevirtError, match=output):
        Inputs(f"@{http_server.url}/l.json")
