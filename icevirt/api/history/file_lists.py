"""Read which files a build was made of, where the repository lists them."""

from __future__ import annotations

from collections.abc import Mapping

from icevirt.api.arguments import listed
from icevirt.api.pipeline.provenance import BUILD_ID
from icevirt.api.pipeline.target import digest_of
from icevirt.archive.scanned import SourceFile
from icevirt.errors import FormatError, ObjectNotFoundError
from icevirt.repo.layout import WORK
from icevirt.storage.protocol import Below, Storage


def listed_files(storage: Storage, record: Mapping[str, object]) -> dict[str, SourceFile] | None:
    """Return the files of a build by URL; None where no list is there that its snapshot names.

    Any client can write lists, so one whose digest is another says nothing.
    """
    name = str(record.get("listing"))
    if not BUILD_ID.fullmatch(name):  # it becomes a path
        return None
    try:
        from icevirt.catalog.listings import read_listing

        files = read_listing(Below(storage, f"{WORK[0]}/"), name).files
    except (FormatError, ObjectNotFoundError, ModuleNotFoundError):  # readers lack pyarrow
        return None
    return {file.url: file for file in files} if digest_of(listed(files)) == name else None
