"""Tables that are made of Python values are those that Arrow makes."""

import subprocess
import sys
from string import printable
from time import sleep

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icevirt.catalog import parquet
from icevirt.errors import ObjectNotFoundError
from icevirt.storage.memory import MemoryStorage

KINDS = {
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False),
    "string": st.text(st.characters(codec="utf-8"), max_size=5),
    "binary": st.binary(max_size=5),
}
ROWS = st.lists(st.tuples(*(st.none() | values for values in KINDS.values())), max_size=20)


@given(ROWS)
def test_a_table_is_what_arrow_makes_of_the_same_values(rows):
    schema = pa.schema([(name, getattr(pa, name)()) for name in KINDS])
    columns = {name: [row[at] for row in rows] for at, name in enumerate(KINDS)}
    made = parquet.table_of(columns, schema)
    made.validate(full=True)
    assert made.equals(pa.table(columns, schema=schema))
    assert [column.null_count for column in made] == [
        values.count(None) for values in columns.values()
    ]


def test_texts_that_are_too_many_for_one_array_are_left_to_arrow(monkeypatch):
    monkeypatch.setattr(parquet, "_MOST", 10)
    schema = pa.schema([("text", pa.string())])
    assert parquet.table_of({"text": [printable]}, schema)["text"].to_pylist() == [printable]


def test_pandas_is_not_imported_to_write_a_table():
    code = (
        "import sys, pyarrow as pa; from icevirt.catalog.parquet import encode_table;"
        "encode_table({'a': [1, None], 'b': ['x', None]}, (('a', 'int64'), ('b', 'string')));"
        "sys.exit('pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class Slow(MemoryStorage):
    """A storage that answers some requests later than those behind them."""

    def __init__(self, count):
        super().__init__()
        self.asked = []
        for number in range(count):
            sink = pa.BufferOutputStream()
            pq.write_table(pa.table({"n": [number]}), sink)
            self.put(f"t{number}", sink.getvalue().to_pybytes())

    def get(self, path):
        self.asked.append(path)
        sleep(0.002 * (len(path) + int(path[-1]) % 3))
        return super().get(path)


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 40])
def test_tables_that_are_asked_for_ahead_come_in_order(count):
    found = parquet.read_tables(Slow(count), [f"t{n}" for n in range(count)], ["n"])
    assert [table["n"][0].as_py() for table in found] == [*range(count)]


def test_a_table_that_is_missing_ends_the_reading_where_it_stands():
    storage = Slow(200)
    storage.delete("t5")
    found = parquet.read_tables(storage, [f"t{n}" for n in range(200)], ["n"])
    assert [next(found)["n"][0].as_py() for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(ObjectNotFoundError):
        next(found)
    assert len(storage.asked) < 100
