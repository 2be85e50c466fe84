"""Implement the format ``icevirt`` by Spark's Python Data Source API.

Spark pickles these classes by reference: the driver's Python processes and the executors import
this module. Instances compare first what is installed: executors that have another icevirt than the
process that planned refuse to read. No option is a secret, because Spark shows options in plans.

A filter is known by the name of its class and by its attributes, as Spark 4.1 and newer make them
of the conditions of a query. What is not understood keeps everything: Spark applies all filters
again to the rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from icevirt.connect.urls import is_url
from icevirt.errors import InvalidInputError, UnsupportedError
from icevirt.execution.installation import SentBySpark
from icevirt.storage.constructors import storage_of
from icevirt.storage.protocol import Storage
from icevirt.tasks.table_query import TABLES, TableQuery, ddl
from icevirt.tasks.table_rows import (
    MOST_PARTITIONS,
    ManifestPiece,
    PieceArray,
    narrow,
    plan_shares,
    rows_of,
)

type _Test = Callable[[ManifestPiece, PieceArray], bool]


class Pushed:
    """The filters of a query, all of which a row has to pass."""

    def __init__(self) -> None:
        self._tests: list[_Test] = []

    def is_empty(self) -> bool:
        """Say whether nothing is known of the rows."""
        return not self._tests

    def add(self, condition: Any) -> None:
        """Take one more filter."""
        column = ".".join(getattr(condition, "attribute", ()))
        kind, value = type(condition).__name__, getattr(condition, "value", None)
        test: _Test | None = None
        if column in ("path", "manifest_id") and value is not None:
            test = _text_test(column, kind, value)
        elif column == "index" and isinstance(value, Sequence) and value:
            test = _index_test(kind, value[0])
        if test is not None:
            self._tests.append(test)

    def keeps(self, piece: ManifestPiece, array: PieceArray) -> bool:
        """Say whether rows of an array in a manifest can pass."""
        return all(test(piece, array) for test in self._tests)


def _text_test(column: str, kind: str, value: Any) -> _Test | None:
    def text(piece: ManifestPiece, array: PieceArray) -> str:
        return array.path if column == "path" else str(piece.manifest)

    match kind:
        case "EqualTo" | "EqualNullSafe":
            return lambda piece, array: text(piece, array) == value
        case "In":
            return lambda piece, array: text(piece, array) in value
        case "StringStartsWith":
            return lambda piece, array: text(piece, array).startswith(value)
        case "StringEndsWith":
            return lambda piece, array: text(piece, array).endswith(value)
        case "StringContains":
            return lambda piece, array: value in text(piece, array)
        case _:
            return None


def _index_test(kind: str, first: Any) -> _Test | None:
    """Compare the first axis, which decides the order of arrays unless it is equal."""
    if not isinstance(first, int):
        return None

    def ends(array: PieceArray) -> tuple[int, int]:
        return array.extents[0] if array.extents else (0, 1 << 32)

    match kind:
        case "EqualTo" | "EqualNullSafe":
            return lambda _, array: ends(array)[0] <= first < ends(array)[1]
        case "GreaterThan" | "GreaterThanOrEqual":
            return lambda _, array: ends(array)[1] > first
        case "LessThan" | "LessThanOrEqual":
            return lambda _, array: ends(array)[0] <= first
        case _:
            return None


FORMAT = "icevirt"

_FLAGS = {"true": True, "false": False}
_STORAGE: Mapping[str, type] = {
    "region": str,
    "endpoint_url": str,
    "account": str,
    "allow_http": bool,
    "anonymous": bool,
    "force_path_style": bool,
    "requester_pays": bool,
}
"""Options that say how a bucket is reached, as arguments of `icevirt.s3_storage` and its like."""

_QUERY = ("table", "branch", "tag", "snapshot", "snapshot_id", "array", "chunks")
_SECRET = ("key", "secret", "token", "password", "credential", "sas")


class IcevirtSource(SentBySpark, DataSource):
    """The tables of a repository: ``spark.read.format("icevirt")``."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns of the table that the options name.

        Raises:
            InvalidInputError: An option is wrong.
        """
        query_of(self.options)
        return ddl(self.options["table"])

    def reader(self, schema: Any) -> DataSourceReader:
        """Return what reads the table; called by Spark.

        Raises:
            InvalidInputError: An option is wrong, or the schema is not that of the table.
        """
        return TableReader(*_read(self.options, schema))

    def writer(self, schema: Any, overwrite: bool) -> Any:  # noqa: ARG002  # Spark's names
        """Refuse to write.

        Spark calls a writer's commit in a Python process of its own, which has neither the session
        nor the credentials of the driver, shows its errors as text, and calls abort after a commit
        whose outcome is unknown.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError(
            "Spark's writers of formats cannot commit to a repository",
            do="Call icevirt.spark.write_references(df, repo), which writes the same data frame"
            " and commits in your process.",
            columns=schema.fieldNames(),
        )


class FilteringIcevirtSource(IcevirtSource):
    """The same for sessions that push filters down to data sources."""

    def reader(self, schema: Any) -> DataSourceReader:
        """Return what reads the table and takes filters; called by Spark."""
        return FilteringTableReader(*_read(self.options, schema))


class TableReader(SentBySpark, DataSourceReader):
    """Reads one table of one version of a repository."""

    def __getstate__(self) -> dict[str, Any]:
        """Return nothing: a partition holds all that an executor needs to read it."""
        return {}

    def __init__(self, storage: Storage, query: TableQuery) -> None:
        self._storage, self._query, self._pushed = storage, query, Pushed()

    def partitions(self) -> list[InputPartition]:
        """Return a partition for each manifest; one for all, if references are counted."""
        at_most = MOST_PARTITIONS if self._query.table == "references" else 1
        shares = plan_shares(self._storage, self._query, at_most=at_most)
        if not self._pushed.is_empty():
            shares = narrow(shares, self._pushed.keeps)
        return [InputPartition(share) for share in shares] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition."""
        if partition.value is not None:
            yield from rows_of(partition.value)


class FilteringTableReader(TableReader):
    """Reads only manifests in which rows can lie that pass the filters."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802  # Spark's name
        """Take filters; Spark applies all of them again to the rows."""
        if self._query.table == "references":
            for each in filters:
                self._pushed.add(each)
        return filters


def query_of(options: Mapping[str, str]) -> tuple[Storage, TableQuery]:
    """Return what options ask for.

    Raises:
        InvalidInputError: There is no such option, one that is needed is missing, or a value is
            wrong.
    """
    known = {"path", *_QUERY, *_STORAGE}
    for name in options:
        if name.lower() not in known:
            raise _unknown(name, known)
    given = {name: options.get(name) for name in ("path", *_QUERY)}
    if given["path"] is None or given["table"] is None:
        raise InvalidInputError(
            f"the format {FORMAT} needs a repository and the name of a table",
            do='Write spark.read.format("icevirt").option("table", "references").load(repo).',
            table=given["table"],
            tables=list(TABLES),
        )
    if not is_url(given["path"]) and not os.path.isabs(given["path"]):
        raise InvalidInputError(
            f"the format {FORMAT} needs an absolute path or a URL, because Spark's processes have"
            " working directories of their own",
            do="Write .load(os.path.abspath(repo)).",
            repo=given["path"],
        )
    if given["snapshot"] is not None and given["snapshot_id"] is not None:
        raise InvalidInputError(
            "snapshot and snapshot_id are the same option", do="Pass one of them."
        )
    query = TableQuery.of(
        str(given["table"]),
        branch=given["branch"],
        tag=given["tag"],
        snapshot_id=given["snapshot_id"] if given["snapshot"] is None else given["snapshot"],
        array=given["array"],
        chunks=given["chunks"],
    )
    found: dict[str, Any] = {}
    for name, kind in _STORAGE.items():
        if (text := options.get(name)) is not None:
            found[name] = _FLAGS.get(text.lower()) if kind is bool else text
            if found[name] is None:
                raise InvalidInputError("this option is true or false", option=name, value=text)
    return storage_of(str(given["path"]), found), query


def _unknown(name: str, known: set[str]) -> InvalidInputError:
    if any(word in name.lower() for word in _SECRET):
        return InvalidInputError(
            "the format icevirt takes no credentials as options, because Spark shows options in"
            " plans",
            do="Set them in the environment of driver and executors, or call"
            ' icevirt.spark.table(spark, icevirt.s3_storage(...), "references").',
            option=name,
        )
    return InvalidInputError(
        f"the format {FORMAT} has no such option",
        do=f"Use some of {', '.join(sorted(known - {'path'}))}.",
        option=name,
    )


def _read(options: Mapping[str, str], schema: Any) -> tuple[Storage, TableQuery]:
    storage, query = query_of(options)
    names = [name for name, _ in TABLES[query.table]]
    if schema.fieldNames() != names:
        raise InvalidInputError(
            "a table of a repository has columns of its own",
            do="Leave out .schema(...), and select columns of the data frame.",
            table=query.table,
            columns=names,
        )
    return storage, query
