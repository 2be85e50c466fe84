"""What servers and the operating system answer that nobody expects: an error of icevirt's."""

from types import SimpleNamespace

import pytest

from icevirt.errors import StorageError
from icevirt.objects import answers
from icevirt.objects.source import LocalSource
from icevirt.objects.source_lists.formats import rows_of

DATES = (
    "",
    "yesterday",
    "Mon, 01 Jan 99999999999 00:00:00 GMT",
    "Mon, 01 Jan 0001 00:00:00 -0000",
    "Mon, 99 Jan 2024 00:00:00 GMT",
    "Mon, 01 Jan 2024 00:00:00 +99999999999",
    "9" * 5000,
)
NUMBERS = ("", "x", "-1", "\xb2", "\u0663", "1.5", "9" * 20, "9" * 5000, "1e5")


@pytest.mark.parametrize("date", DATES)
def test_a_date_that_is_none_is_unknown(date):
    found = answers._seconds(date)
    assert found is None or isinstance(found, float)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_that_is_none_is_unknown(number):
    assert answers.retry_after(number) is None
    assert answers.meta_of({"etag": '"a"'}, number).size is None


@pytest.mark.parametrize("output", ["bytes 0-\u0663/9", f"bytes 0-{'9' * 5000}/*", "bytes -1-2/3"])
def test_a_range_that_is_none_is_no_range(output):
    assert answers.range_of(SimpleNamespace(status=206), {"content-range": output}) is None


MEMORY = "/proc/self/mem"  # whose first page nobody has: the kernel answers EIO


def test_an_input_output_error_of_a_source_is_a_storage_error(monkeypatch):
    with LocalSource(MEMORY) as source:
        object.__setattr__(source.file, "size", 100)
        with pytest.raises(StorageError, match="cannot be read") as caught:
            source.read(0, 10)
    assert caught.value.facts["reason"] == "Input/output error"
    assert caught.value.facts["file"] == f"file://{source.local_path}"
    assert caught.value.do


def test_an_input_output_error_of_a_list_is_a_storage_error():
    with pytest.raises(StorageError, match="list of sources cannot be read") as caught:
        list(rows_of(MEMORY))
    assert caught.value.facts["list"] == MEMORY


def test_a_length_that_a_file_claims_allocates_no_more_than_the_file(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    with LocalSource(str(tmp_path / "a")) as source:
        assert source.read(1, 1 << 62) == b"bc"
