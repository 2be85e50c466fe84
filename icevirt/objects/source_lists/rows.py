"""Read one row of a list of source files: fields in all their spellings.

A list may also be a data frame of Spark; a table of Delta Lake, Iceberg or Hive that Spark reads is
one. Only the columns that lists have are computed, and the driver holds one partition at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

import pyarrow as pa

from icevirt.connect.urls import spell
from icevirt.errors import IcevirtError, InvalidInputError, StorageError
from icevirt.model.chunks import END_SECOND
from icevirt.redaction import without_secrets

# names of columns, the first that is there counts: of the path or URL, size, etag, time
_NAMES = (("url", "path", "href"), ("size",), ("etag",), ("last_modified", "mtime"))
_SECOND = 1_000_000_000


class Row(NamedTuple):
    """A file as a list names it."""

    line: int  # of the list, from 1; a row where it has no lines
    url: str  # or path
    size: int | None = None
    etag: str = ""
    last_modified: int | None = None  # nanoseconds since 1970


def choose_columns(there: Sequence[str], name: str, url: str | None = None) -> list[str | None]:
    """Return which columns have URL, size, etag and time, however they are capitalised.

    Args:
        there: The columns that there are.
        name: Of the list.
        url: The column of the URL, where a catalog names it; the others are its own then.

    Raises:
        InvalidInputError: None has the URL.
    """
    if url is not None and url in there:
        return [url, None, None, None]
    folded = {each.strip().lower(): each for each in reversed(there)}
    found = [next((folded[each] for each in names if each in folded), None) for names in _NAMES]
    if found[0] is None:
        raise InvalidInputError(
            "a list of sources has no URL column",
            do="Name it 'url'; further columns are size, etag and last_modified.",
            list=name,
            columns=list(there),
        )
    return found


def bad_row(what: str, name: str, line: int, **facts: Any) -> InvalidInputError:
    """Return the error of a row that cannot be used."""
    return InvalidInputError(what, do="Correct the list.", list=name, line=line, **facts)


def row_of(found: Mapping[str, Any], name: str, line: int) -> Row:
    """Read a row, given as values by the names of columns.

    Raises:
        InvalidInputError: It names no file, or says something impossible of it.
    """
    try:
        url, _, _, modified = choose_columns(list(found), name)
    except InvalidInputError:
        what = "a row of a list of sources has no url"
        raise bad_row(what, name, line, columns=list(found)) from None
    values = (found.get(each or "") for each in (url, "size", "etag", modified))
    return row(values, name, line)


def row(values: Iterable[Any], name: str, line: int) -> Row:
    """Read URL, size, etag and time of modification as lists spell them.

    Raises:
        InvalidInputError: There is no URL, or one of the others is impossible.
    """
    url, size, etag, modified = values
    if not isinstance(url, str) or not url.strip() or "\0" in url:
        raise bad_row("a row of a list of sources does not name a file", name, line, url=url)
    try:
        place = spell(url)
    except InvalidInputError as error:
        error.facts |= {"list": name, "line": line}
        raise
    if etag is not None and not isinstance(etag, str):
        raise bad_row("an etag in a list of sources is not a string", name, line, etag=etag)
    return Row(
        line=line,
        url=place,
        size=None if size is None or size == "" else _size(size, name, line),
        etag=_strong(etag or ""),
        last_modified=(None if modified is None or modified == "" else _time(modified, name, line)),
    )


def _size(given: Any, name: str, line: int) -> int:
    if isinstance(given, str) and given.strip().isdecimal():
        given = int(given)
    if isinstance(given, float) and given.is_integer():  # what pandas makes of a column with gaps
        given = int(given)
    if isinstance(given, bool) or not isinstance(given, int) or given < 0:
        raise bad_row(
            "a size in a list of sources is not a number of bytes", name, line, size=given
        )
    return given


def _strong(etag: str) -> str:
    """Return a strong etag as servers write it; a weak one says nothing about bytes."""
    if etag.startswith("W/") or not etag.strip():
        return ""
    return etag if etag.startswith('"') else f'"{etag.strip()}"'


def _time(given: Any, name: str, line: int) -> int:
    """Read seconds since 1970, ISO 8601 (UTC where no zone is named), or the date of a header."""
    try:
        nanoseconds = _nanoseconds(given)
    except (ValueError, TypeError, InvalidOperation, OverflowError):
        nanoseconds = -1
    if not 0 <= nanoseconds < END_SECOND * _SECOND:
        raise bad_row(
            "a time in a list of sources is neither seconds since 1970 nor an ISO 8601 date",
            name,
            line,
            last_modified=str(given),
        )
    return nanoseconds


def _nanoseconds(given: Any) -> int:
    if isinstance(given, str) and not given.strip().replace(".", "", 1).isdecimal():
        text = given.strip()
        given = parsedate_to_datetime(text) if "," in text else datetime.fromisoformat(text)
    if isinstance(given, datetime):
        moment = given if given.tzinfo else given.replace(tzinfo=UTC)
        past = moment - datetime(1970, 1, 1, tzinfo=UTC)
        return (past.days * 86_400 + past.seconds) * _SECOND + past.microseconds * 1000
    return int(Decimal(given) * _SECOND)


def plain_values(column: Any) -> list[Any]:
    """Return the values of a column; moments as microseconds, for which pandas is not needed."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    values: list[Any] = column.to_pylist()
    return values


def is_spark_frame(source: object) -> bool:
    """Say whether this is a data frame of Spark, classic or Connect, without importing Spark."""
    return hasattr(source, "sparkSession") and hasattr(source, "toLocalIterator")


def rows_of_spark(frame: Any) -> Iterator[Row]:
    """Yield the files of a data frame.

    Raises:
        InvalidInputError: It has no column of URLs, or a row is wrong.
        StorageError: Spark cannot compute it.
    """
    name = type(frame).__name__
    columns = choose_columns([*frame.columns], name)
    used = [column for column in columns if column is not None]
    zoned = {each.name for each in frame.schema.fields if each.dataType.typeName() == "timestamp"}
    wanted = frame.select(*(frame[column] for column in used))
    try:
        for line, found in enumerate(wanted.toLocalIterator(prefetchPartitions=True), 1):
            values: dict[str | None, Any] = {None: None, **dict(zip(used, found, strict=True))}
            for column in zoned.intersection(used):
                if isinstance(values[column], datetime):  # Spark's is in this machine's time
                    values[column] = values[column].astimezone(UTC)
            yield row((values[column] for column in columns), name, line)
    except IcevirtError:
        raise
    except Exception as error:  # of Spark, in each version another tree
        raise StorageError(
            "Spark cannot compute a list of sources",
            do="Look at the cause; `df.count()` has to work first.",
            list=name,
            cause=without_secrets(str(error))[:500],
        ) from error
