"""A directory becomes a catalog only if nothing else is in it."""

import json

import pytest

from icevirt.catalog.parts import mark
from icevirt.errors import AlreadyExistsError, FormatError
from icevirt.repo.repository import Repository
from icevirt.storage.local import LocalStorage


def folder_with(name, body):
    def make(path):
        path.mkdir(parents=True)
        (path / name).write_bytes(body)

    return make


FOREIGN = {
    "a directory of something else": folder_with("thesis.tex", b"text"),
    "a repository": Repository.create,
    "a plain file": lambda path: path.write_bytes(b"text"),
    "an empty file": lambda path: path.touch(),
    "a catalog.json of something else": folder_with("catalog.json", b'{"type": "Catalog"}'),
    "a catalog.json that is a list": folder_with("catalog.json", b"[1]"),
    "a catalog.json that is no JSON": folder_with("catalog.json", b"\xff\xfe"),
    "a directory called catalog.json": lambda path: folder_with("x", b"")(path / "catalog.json"),
}


def contents(path):
    return {
        each: (each.stat().st_mtime_ns, each.read_bytes() if each.is_file() else None)
        for each in [path, *path.rglob("*")]
    }


@pytest.mark.parametrize("make", FOREIGN.values(), ids=FOREIGN.keys())
def test_what_is_no_catalog_is_refused_and_left_alone(make, tmp_path):
    make(tmp_path / "full")
    before = contents(tmp_path / "full")
    with pytest.raises(AlreadyExistsError, match="Name an empty or new directory") as caught:
        mark(LocalStorage(tmp_path / "full"))
    assert str(tmp_path / "full") in str(caught.value)
    assert contents(tmp_path / "full") == before


def test_a_new_or_empty_directory_becomes_a_catalog_and_stays_one(tmp_path):
    (tmp_path / "empty").mkdir()
    for name in ("empty", "new"):
        mark(LocalStorage(tmp_path / name))
        before = contents(tmp_path / name)
        mark(LocalStorage(tmp_path / name))
        assert contents(tmp_path / name) == before


def test_a_catalog_of_another_version_is_refused(tmp_path):
    folder_with("catalog.json", json.dumps({"icevirt_catalog": 0}).encode())(tmp_path / "old")
    with pytest.raises(FormatError, match="another version"):
        mark(LocalStorage(tmp_path / "old"))
