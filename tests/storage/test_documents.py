"""The examples of docs/storage.md run, on a real server where they need one."""

import re
import urllib.request
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/storage.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("at", range(len(BLOCKS)))
def test_an_example_of_the_page_runs(at, s3_server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_ENDPOINT_URL": s3_server,
        "AWS_ALLOW_HTTP": "true",
    }.items():
        monkeypatch.setenv(name, value)
    request = urllib.request.Request(f"{s3_server}/my-bucket", method="PUT")
    urllib.request.urlopen(request).close()
    exec(compile(BLOCKS[at], str(PAGE), "exec"), {"__name__": "example"})


def test_every_constructor_is_reported():
    import icevirt

    output = PAGE.read_text()
    constructors = [name for name in icevirt.__all__ if name.endswith(("_storage", "_store"))]
    known = {"local_filesystem_store", "fsspec_store"}  # of containers on disk, and of fsspec
    assert [name for name in constructors if name not in output and name not in known] == []
