"""Let a session know the source "icevirt-files"."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icevirt.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register_file_stream(session: SparkSession) -> None:
    """Let a session know the source "icevirt-files".

    Args:
        session: Of Spark 4.0 or newer. Its Python workers need icevirt, too.

    Raises:
        InvalidInputError: The session is of an older Spark.
    """
    try:
        from icevirt.spark.file_source import FileNames
    except ImportError as error:
        raise InvalidInputError(
            f"Spark {session.version} knows no sources written in Python",
            do='Use Spark 4.0, or its source "binaryFile" with select("path"): docs/watching.md.',
        ) from error
    session.dataSource.register(FileNames)
