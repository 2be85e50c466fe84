"""Read which files a build was made of, where the repository lists them."""

from __future__ import annotations

from collections.abc import Mapping

from icevirt.archive.scanned import SourceFile
from icevirt.errors import FormatError, InvalidInputError
from icevirt.storage.protocol import Storage


def listed_files(storage: Storage, record: Mapping[str, object]) -> dict[str, SourceFile] | None:
    """Return the files of a build by URL; None where no list is there that its snapshot names.

    Any client can write lists, so one whose digest is another says nothing.
    """
    try:
        from icevirt.api.dataset.files_held import files_of_build

        files = files_of_build(storage, record).files
    except (FormatError, InvalidInputError, ModuleNotFoundError):  # readers lack pyarrow
        return None
    return {file.url: file for file in files}
