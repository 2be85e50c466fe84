"""A path of Windows is no file name of another system."""

import os

import pytest

import icevirt
import icevirt.icechunk
from icevirt.errors import InvalidInputError

pytestmark = pytest.mark.skipif(os.name == "nt", reason="there it is a path")
CALLS = {
    "repository": lambda: icevirt.Repository.create("C:\\repo"),
    "storage": lambda: icevirt.local_filesystem_storage("C:\\repo"),
    "icechunk's storage": lambda: icevirt.icechunk.local_filesystem_storage("c:\\repo"),
    "sources": lambda: icevirt.build("C:\\data\\*.nc", "repo", executor="in-process"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_it_is_refused_with_what_to_write(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInputError, match="path of Windows") as caught:
        call()
    assert "/mnt/c" in caught.value.do
    assert not list(tmp_path.iterdir())


def test_a_file_of_such_a_name_is_found_by_its_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    icevirt.Repository.create("./C:\\repo")
    assert (tmp_path / "C:\\repo" / "repo").exists()
