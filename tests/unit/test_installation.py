"""Errors install icevirt from where it came from, as installers record it."""

import json

import pytest

from icevirt import installation

WHEEL = "icevirt-0.1.0-py3-none-any.whl"
REVISION = {"vcs": "git", "commit_id": "4f2a", "requested_revision": "main"}
ORIGINS = [
    (None, "'icevirt[hdf5,cluster]'"),
    ({"url": "file:///my%20src", "dir_info": {}}, "'/my src[hdf5,cluster]'"),
    ({"url": "file:///src", "dir_info": {"editable": True}}, "-e '/src[hdf5,cluster]'"),
    ({"url": f"file:///w/{WHEEL}", "archive_info": {}}, f"'/w/{WHEEL}[hdf5,cluster]'"),
    (
        {"url": f"https://me:secret@host/{WHEEL}", "archive_info": {}},
        f"'icevirt[hdf5,cluster] @ https://host/{WHEEL}'",
    ),
    (
        {"url": "https://host/icevirt", "vcs_info": REVISION},
        "'icevirt[hdf5,cluster] @ git+https://host/icevirt@4f2a'",
    ),
    (
        {"url": "ssh://git@host/icevirt", "vcs_info": REVISION, "subdirectory": "python"},
        "'icevirt[hdf5,cluster] @ git+ssh://git@host/icevirt@4f2a#subdirectory=python'",
    ),
    (
        {"url": "ssh://me:secret@host/icevirt", "vcs_info": REVISION},
        "'icevirt[hdf5,cluster] @ git+ssh://host/icevirt@4f2a'",
    ),
]


class Installed:
    def __init__(self, **files):
        self.files = files

    def read_text(self, name):
        return self.files.get(name.replace(".", "_"))


@pytest.mark.parametrize(("origin", "requirement"), ORIGINS)
@pytest.mark.parametrize(("installer", "tool"), [("pip\n", "pip"), ("uv", "uv pip")])
def test_more_of_icevirt_comes_from_where_it_came_from(
    origin, requirement, installer, tool, monkeypatch
):
    record = None if origin is None else json.dumps(origin)
    found = Installed(direct_url_json=record, INSTALLER=installer)
    monkeypatch.setattr(installation, "distribution", lambda _: found)
    assert installation.install_command("hdf5,cluster") == f"{tool} install {requirement}"


def test_a_folder_on_the_import_path_has_no_origin(monkeypatch):
    def missing(_):
        raise installation.PackageNotFoundError

    monkeypatch.setattr(installation, "distribution", missing)
    assert installation.install_command() == "pip install icevirt"
