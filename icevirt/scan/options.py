"""Define `ScanOptions`: what a scan reads of files, and what it records."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from icevirt.amounts import parse_size
from icevirt.archive.options import Names, Option, Options, count, names, size
from icevirt.archive.scanned import DEFAULT, ScanLimits
from icevirt.errors import InvalidInputError
from icevirt.scan.contract import MAIN, CodecPackage, GridUse, PolicyLike, SidecarUse, rules_of
from icevirt.scan.registry import is_installed, unknown_scanner
from icevirt.scan.versions import arguments_of

MAX_NATIVE_BYTES = 256 * 1024 * 1024
"""Of values that are stored because they cannot be referenced, by default."""


def bad_files_allowed(given: int | str, files: int) -> int:
    """Return how many of ``files`` may be bad, given a number or a share like ``"1%"``.

    Raises:
        InvalidInputError: It is neither, or negative.
    """
    try:
        if isinstance(given, str) and given.endswith("%"):
            allowed = math.floor(files * float(given[:-1]) / 100)
        else:
            allowed = int(given)
    except (ValueError, TypeError, OverflowError) as error:  # the last of "inf%"
        raise InvalidInputError(
            "max_bad_files must be a number or a share",
            do='Pass a number of files, or a share like "1%".',
            max_bad_files=given,
        ) from error
    if allowed < 0 or (isinstance(given, str) and given.startswith("-")):
        raise InvalidInputError("max_bad_files is negative", do="Pass 0 or more.")
    if isinstance(given, str) and given.endswith("%") and float(given[:-1]) > 100:
        raise InvalidInputError(
            "max_bad_files is more than 100%", do="Pass at most 100%.", max_bad_files=given
        )
    return allowed


def _bad_files(given: Any) -> int | str:
    bad_files_allowed(given, 0)
    held: int | str = given
    return held


def _scanner(given: Any) -> str:
    if not isinstance(given, str):
        raise InvalidInputError("the name of a scanner is a text", do="Correct it.", given=given)
    # others are looked for where they are used: options may be a repository's, and names import
    if given and ":" not in given and not is_installed(given):
        raise unknown_scanner(given)
    return given


def _sidecar(given: Any) -> str:
    return _one_of(SidecarUse, "no way to use sidecars", given)


def _grids(given: Any) -> str:
    return _one_of(GridUse, "no way to treat grids", given)


def _packages(given: Any) -> tuple[str, ...]:
    found = names(given)
    return tuple(_one_of(CodecPackage, "no package of codecs", each) for each in found)


def _version(given: Any) -> str:
    arguments_of(given)
    return str(given)


def _one_of(kind: type[StrEnum], what: str, given: Any) -> str:
    known = [each.value for each in kind]
    if given not in known:
        raise InvalidInputError(what, do=f"Pass one of {', '.join(known)}.", given=given)
    return str(given)


def _policy(given: Any) -> PolicyLike:
    rules_of(given)
    return dict(given) if isinstance(given, Mapping) else str(given)


def _seconds(given: Any) -> float | None:
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    if given is not None and not (is_number and 0 < given < math.inf):
        raise InvalidInputError(
            "not a number of seconds above 0", do="Pass how many seconds a scan may take."
        )
    return None if given is None else float(given)


def _memory(given: Any) -> int | str | None:
    return size(given, 1, (1 << 63) - 1)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ScanOptions(Options):
    """What decides what a scan reads of files and records of them."""

    KEYWORD: ClassVar[str] = "scan_options"

    source_group: Annotated[str, Option("Take only what is below this group of the files.")] = "/"
    variables: Annotated[
        Names,
        Option("Take only these variables, by name or absolute path, coordinates included."),
    ] = ()
    drop_variables: Annotated[
        Names,
        Option("Leave these variables out, by name or absolute path."),
    ] = ()
    variable_policy: Annotated[
        PolicyLike,
        Option(
            "What a scan does with variables. fail: a variable that cannot be represented stops the"
            " scan of its file; skip: it is left out, with a warning; reference: an error where it"
            " cannot be referenced; native: read and stored in chunks; inline: in one chunk. For"
            " all variables, or by name, path or pattern; the first that fits counts.",
            _policy,
        ),
    ] = "fail"
    max_native_bytes_per_file: Annotated[
        int,
        Option(
            "How many bytes of values a scan may store for one file because they cannot be"
            " referenced.",
            count,
        ),
    ] = MAX_NATIVE_BYTES
    max_bad_files: Annotated[
        int | str,
        Option(
            "How many files may be left out because they cannot be scanned: a number, or a share"
            " like 1%.",
            _bad_files,
        ),
    ] = 0
    file_timeout: Annotated[
        float | None,
        Option(
            "Seconds that the scan of one file may take, by default 600. A file that takes longer"
            " is bad (timeout) until a scan gives it more.",
            _seconds,
        ),
    ] = None
    file_memory: Annotated[
        int | str | None,
        Option(
            "Memory that the scan of one file may take beside what its process has, by default"
            " 4GiB: bytes, or text with a unit. A file that needs more is bad (oom) until a scan"
            " gives it more.",
            _memory,
        ),
    ] = None
    scanner: Annotated[
        str,
        Option(
            "The scanner to use, like virtualizarr:FITSParser; by default each file's content"
            " decides.",
            _scanner,
        ),
    ] = ""
    allow_references_to: Annotated[
        Names,
        Option(
            "Directories and URL prefixes that references in the files may lead to, beside the"
            " files' own directories: of files of references, virtual datasets and raw files of"
            " HDF5."
        ),
    ] = ()
    sidecar: Annotated[
        str,
        Option(
            "Whether a file beside another one is read in place of what it describes: the list of"
            " messages of GRIB (.idx, .index), the DMR++ document of NetCDF and HDF5 (.dmrpp)."
            " auto: where there is one; require: a file without one is bad; ignore: never; usual:"
            " lists of GRIB alone, where there is one.",
            _sidecar,
        ),
    ] = SidecarUse.usual.value
    grids: Annotated[
        str,
        Option(
            "What grids of a file of GRIB become. one: a dataset on one grid, variables on others"
            " are refused; groups: a group of each grid.",
            _grids,
        ),
    ] = GridUse.one.value
    codecs: Annotated[
        Names,
        Option(
            "Packages of codecs that readers of the dataset will have beside zarr's: imagecodecs."
            " What only these decode (LZF, SZIP and LZ4 of HDF5) is then referenced, and not"
            " copied. Readers run pip install imagecodecs-zarr.",
            _packages,
        ),
    ] = ()
    source_version: Annotated[
        str,
        Option(
            "Which version of repositories of Icechunk is taken: branch=NAME, tag=NAME or"
            " snapshot_id=ID.",
            _version,
        ),
    ] = MAIN
    asset: Annotated[
        str | None,
        Option(
            "Which asset of STAC items is the file; by default the one with the role data. Of"
            " granules of CMR: external (https://), the default, or direct (the bucket)."
        ),
    ] = None

    @property
    def limits(self) -> ScanLimits:
        """What the scan of one file may take."""
        return ScanLimits(
            seconds=DEFAULT.seconds if self.file_timeout is None else self.file_timeout,
            memory=DEFAULT.memory if self.file_memory is None else parse_size(self.file_memory),
        )
