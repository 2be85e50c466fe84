"""Files of every name that a file system allows are read for what they are, or refused by name."""

import csv
import json
import os
import urllib.request
from urllib.parse import quote

import h5py
import numpy as np
import pytest
import xarray as xr
import zarr

import icevirt
from builds.support import official
from icevirt.api.sources.inputs import Inputs
from icevirt.connect.urls import file_url
from icevirt.errors import IcevirtError, InvalidInputError
from icevirt.objects.source_lists.listing import list_sources
from servers.places import BUCKET

BYTES = bytes(byte for byte in range(1, 128) if byte != ord("/"))  # every byte of ASCII but two
NAMES = [
    "plain.h5",
    "all" + BYTES[:60].decode() + ".h5",
    "all" + BYTES[60:].decode() + ".h5",
    "back\\slash.h5",
    "a b.h5",
    " leading.h5",
    "per%20cent.h5",
    "%2e%2e.h5",
    "query?x=1&y.h5",
    "#fragment.h5",
    "new\nline.h5",
    "return\r.h5",
    "tab\t.h5",
    "\x01control\x7f.h5",
    "[ab].h5",
    "st*r?.h5",
    "{a,b}.h5",
    "~home.h5",
    "-v.h5",
    "--help.h5",
    "vcc:x.h5",
    "file:x.h5",
    "a:b@c.h5",
    "'quoted' \"twice\".h5",
    "$HOME `x`;&|.h5",
    "composed-\u00e9.h5",
    "decomposed-e\u0301.h5",
    "\U0001f9ca.h5",
    "\u2028separator.h5",
    "\u202eright-to-left.h5",
    "\ufeffmark.h5",
    "n" * 252 + ".h5",
]
ODD = NAMES[1:]


def write(path, number):
    with h5py.File(path, "w") as file:
        file["t"] = np.array([float(number)])
        file["t"].make_scale("t")
        values = np.full((1, 3), number, "<i4")
        file.create_dataset("v", data=values, chunks=(1, 3)).dims[0].attach_scale(file["t"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A file of each name; the number of its name in it."""
    top = tmp_path_factory.mktemp("odd")
    for number, name in enumerate(NAMES):
        write(top / "0", number)
        os.rename(top / "0", top / name)
    return top


def assert_holds_all(repo, prefixes):
    """Each file's values, by icevirt's engine and by the official client."""
    mine = xr.open_dataset(repo, engine="icevirt", authorize_virtual_chunk_access=prefixes)
    assert mine.t.values.tolist() == list(range(len(NAMES)))
    assert mine.v.values.tolist() == [[number] * 3 for number in range(len(NAMES))]
    return mine


@pytest.mark.ci
def test_a_directory_of_odd_names_is_built_and_read(folder, repo_path, in_process):
    icevirt.build(folder, repo_path, concat_dim="t")
    prefixes = [file_url(folder) + "/"]
    mine = assert_holds_all(repo_path, prefixes)
    theirs = zarr.open_group(official(str(repo_path)).readonly_session("main").store, mode="r")
    assert theirs["v"][...].tolist() == mine.v.values.tolist()
    checked = icevirt.verify(repo_path, full=True, authorize_virtual_chunk_access=prefixes)
    assert checked.ok, checked


def test_a_directory_and_a_glob_list_every_name(folder):
    wanted = {file_url(folder / name) for name in NAMES}
    assert {file.url for file in list_sources(folder)} == wanted
    assert {file.url for file in list_sources(f"{folder}/*.h5")} == wanted


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_name_stands_for_its_own_file(name, folder, monkeypatch):
    """Characters of globs too, where there is such a file; and in every form of naming it."""
    url = file_url(folder / name)
    monkeypatch.chdir(folder)
    for said in (folder / name, str(folder / name), url, f"./{name}"):
        assert [file.url for file in list_sources(said)] == [url]
    assert icevirt.scan_file(folder / name).array("v").references.locations.url[0] == url


def lists(folder, form):
    """Write a list of all names that the form can hold; return it and the names."""
    path = folder.parent / f"list.{form}"
    if form == "txt":
        names = [name for name in NAMES if not {"\n", "\r"} & set(name)]
        path.write_text("".join(f"{folder / name}\n" for name in names))
    elif form == "jsonl":
        names = NAMES
        path.write_text("".join(json.dumps({"url": str(folder / name)}) + "\n" for name in names))
    else:
        names = NAMES
        with open(path, "w", newline="") as file:
            csv.writer(file).writerows([["url"], *([str(folder / name)] for name in names)])
    return path, names


@pytest.mark.parametrize("form", ["txt", "jsonl", "csv"])
def test_lists_name_the_files_that_they_say(form, folder):
    path, names = lists(folder, form)
    found = Inputs(f"@{path}").files()
    assert sorted(file.url for file in found) == sorted(file_url(folder / name) for name in names)


@pytest.mark.parametrize("raw", [b"invalid\xff.h5", b"surrogate\xed\xa0\x80.h5", b"latin\xe9.h5"])
def test_a_name_that_is_not_utf_8_is_refused_by_name(raw, tmp_path):
    write(tmp_path / "0", 0)
    path = os.path.join(os.fsencode(tmp_path), raw)
    os.rename(tmp_path / "0", path)
    ways = [
        lambda: icevirt.scan_file(os.fsdecode(path)),
        lambda: list_sources(os.fsdecode(path)),
        lambda: list_sources(tmp_path),
        lambda: list_sources(f"{tmp_path}/*.h5"),
        lambda: icevirt.build(tmp_path, tmp_path / "repo"),
    ]
    for way in ways:
        with pytest.raises(InvalidInputError, match=r"not UTF-8.*Rename it") as caught:
            way()
        assert caught.value.facts["path"] == os.fsdecode(path)
    (tmp_path / "list.txt").write_bytes(path + b"\n")
    with pytest.raises(InvalidInputError, match="not UTF-8"):
        Inputs(f"@{tmp_path}/list.txt").files()


def put_raw(s3, key, body):
    """Put an object as no client of obstore would, whatever its key."""
    url = f"{s3.endpoint}/{BUCKET}/{quote(key)}"
    request = urllib.request.Request(url, data=body, method="PUT")
    with urllib.request.urlopen(request):
        pass


@pytest.fixture
def at_s3(s3, monkeypatch, in_process):
    for name, value in {
        "AWS_ENDPOINT_URL": s3.endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }.items():
        monkeypatch.setenv(name, value)
    return s3


def is_plain(name):
    return not any(character < " " or character in "\\\x7f" for character in name)


def test_a_bucket_of_odd_keys_is_listed_built_and_read(at_s3, folder, repo_path):
    there = [number for number, name in enumerate(NAMES) if is_plain(name)]
    for number in there:
        put_raw(at_s3, f"{at_s3.prefix}/{NAMES[number]}", (folder / NAMES[number]).read_bytes())
    report = icevirt.build(f"{at_s3.url}/", repo_path, concat_dim="t")
    for prefix in report.containers:
        assert at_s3.url.startswith(prefix.rstrip("/"))
    mine = xr.open_dataset(
        repo_path, engine="icevirt", authorize_virtual_chunk_access=report.containers
    )
    assert mine.v.values[:, 0].tolist() == mine.t.values.tolist() == there


ODD_KEYS = ["new\nline.h5", "\x01.h5", "a//b.h5", "./a.h5", "../a.h5", "back\\slash.h5"]


@pytest.mark.parametrize("key", ODD_KEYS, ids=ascii)
def test_a_key_that_cannot_be_read_is_refused_by_name(key, at_s3, folder, repo_path):
    put_raw(at_s3, f"{at_s3.prefix}/{key}", (folder / NAMES[0]).read_bytes())
    with pytest.raises(IcevirtError, match="Rename the object") as caught:
        icevirt.build(f"{at_s3.url}/", repo_path, concat_dim="t")
    shown = key.replace("\n", "\\n").replace("\x01", "\\u{1}")
    assert key == "back\\slash.h5" or caught.value.facts["key"].endswith(shown)


def served_at(http_server, folder, name):
    http_server.files.put(f"d/{name}", (folder / name).read_bytes())
    return f"{http_server.url}/d/{quote(name)}"


def test_urls_of_odd_names_are_built_and_read(http_server, folder, repo_path, in_process):
    there = [number for number, name in enumerate(NAMES) if is_plain(name)]
    urls = [served_at(http_server, folder, NAMES[number]) for number in there]
    report = icevirt.build(urls, repo_path, concat_dim="t")
    mine = xr.open_dataset(
        repo_path, engine="icevirt", authorize_virtual_chunk_access=report.containers
    )
    assert mine.v.values[:, 0].tolist() == mine.t.values.tolist() == there


@pytest.mark.parametrize("name", [name for name in NAMES if not is_plain(name)], ids=ascii)
def test_urls_of_names_that_readers_take_apart_are_refused(name, http_server, folder):
    url = served_at(http_server, folder, name)
    with pytest.raises(IcevirtError) as caught:
        icevirt.scan_file(url)
    assert caught.value.do
