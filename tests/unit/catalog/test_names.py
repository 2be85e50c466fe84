"""Names of files are read where the catalog has them, and only when they are asked for."""

import numpy as np
import pytest

from icevirt.archive.catalog import FILES, path_of
from icevirt.archive.facts import FileColumns
from icevirt.archive.plan import FileRows
from icevirt.catalog.parquet import encode_table
from icevirt.catalog.task_inputs import TaskFiles
from icevirt.errors import FormatError, ObjectNotFoundError
from icevirt.model.strings import Strings
from icevirt.storage.memory import MemoryStorage

EMPTY = {"int32": 0, "int64": 0, "float64": 0.0, "string": ""}
PARTS = {"p0": [0, 1, 2, 3], "p1": [3, 0, 2], "p2": [7]}  # rows in the order of the tables


def url(part, row):
    return f"s3://archive/{part}/{'é' * row}{row}.nc"


class Catalog(MemoryStorage):
    """A catalog whose parts have files tables, and which notes what is read."""

    def __init__(self):
        super().__init__()
        self.read = []
        for part, rows in PARTS.items():
            columns = {name: [EMPTY[kind]] * len(rows) for name, kind in FILES}
            columns |= {
                "row": rows,
                "url": [url(part, row) for row in rows],
                "etag": ["" if row % 2 else f'"{part}{row}"' for row in rows],
                "size": [1 << 40 | row for row in rows],
                "last_modified": [10**18 + row for row in rows],
            }
            self.put(path_of("files", part), encode_table(columns, FILES))

    def get(self, path):
        self.read.append(path)
        return super().get(path)


def rows_of(*wanted):
    """Return the rows for (part, row) in this order."""
    names = tuple(PARTS)
    return FileRows(
        parts=names,
        part=np.array([names.index(part) for part, _ in wanted], np.int32),
        row=np.array([row for _, row in wanted], np.int32),
    )


ORDERS = {
    "as the catalog has them": [("p0", 0), ("p0", 1), ("p0", 2), ("p0", 3), ("p1", 3), ("p1", 0)],
    "in another order": [("p1", 2), ("p0", 3), ("p2", 7), ("p0", 0), ("p1", 0)],
    "one part": [("p1", 0), ("p1", 2), ("p1", 3)],
    "none": [],
}


@pytest.mark.parametrize("wanted", ORDERS.values(), ids=ORDERS.keys())
def test_files_get_the_names_of_their_rows(wanted):
    catalog = Catalog()
    files = TaskFiles(catalog, rows_of(*wanted))
    assert len(files) == len(wanted)
    assert catalog.read == []
    named = files.name_files()
    assert list(named.url) == [url(*each) for each in wanted]
    assert list(named.etag) == ["" if row % 2 else f'"{part}{row}"' for part, row in wanted]
    assert named.size.tolist() == [1 << 40 | row for _, row in wanted]
    assert named.last_modified.tolist() == [10**18 + row for _, row in wanted]
    used = {part for part, _ in wanted}
    assert sorted(catalog.read) == sorted(path_of("files", part) for part in used)
    assert files.name_files() is named


def test_one_name_is_read_from_one_part():
    catalog = Catalog()
    files = TaskFiles(catalog, rows_of(("p0", 2), ("p0", 1), ("p2", 7)))
    assert [files.url(place) for place in range(3)] == [url("p0", 2), url("p0", 1), url("p2", 7)]
    assert catalog.read == [path_of("files", "p0"), path_of("files", "p2")]


def test_names_that_travelled_are_taken_as_they_are():
    rows = rows_of(("p0", 0), ("p1", 3))
    output = FileColumns(
        parts=rows.parts,
        part=rows.part,
        row=rows.row,
        url=Strings.of(["https://new/a", "https://new/b"]),
        etag=Strings.empty(2),
        size=np.ones(2, np.int64),
        last_modified=np.ones(2, np.int64),
    )
    catalog = Catalog()
    files = TaskFiles(catalog, output)
    assert files.name_files() is output
    assert files.url(1) == "https://new/b"
    assert (files.rows.part is output.part, files.rows.row is output.row) == (True, True)
    assert catalog.read == []


@pytest.mark.parametrize("wanted", [[("p1", 1)], [("p2", 8)], [("p2", 0), ("p2", 7)]])
def test_a_row_that_is_not_there_is_an_error(wanted):
    with pytest.raises(FormatError, match="lacks files"):
        TaskFiles(Catalog(), rows_of(*wanted)).name_files()
    with pytest.raises(FormatError, match="lacks files"):
        TaskFiles(Catalog(), rows_of(*wanted)).url(0)


def test_a_part_that_is_gone_is_an_error():
    catalog = Catalog()
    catalog.delete_below("files")
    with pytest.raises(ObjectNotFoundError):
        TaskFiles(catalog, rows_of(("p0", 0))).name_files()


def test_taken_rows_know_only_their_parts():
    rows = rows_of(("p0", 0), ("p2", 7), ("p0", 3)).take(np.array([2, 1, 1]))
    assert rows.parts == ("p0", "p2")
    assert (rows.part.tolist(), rows.row.tolist()) == ([0, 1, 1], [3, 7, 7])
