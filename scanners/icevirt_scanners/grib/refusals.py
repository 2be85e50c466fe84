"""Say which fields are not read, and why."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from icevirt.model.grib_packings import BITS
from icevirt.remedy_notation import Remedy, write_code, write_option, write_remedy
from icevirt.scan.contract import GridUse
from icevirt_scanners.context import LEAVE_OUT
from icevirt_scanners.grib.described import DescribedFile
from icevirt_scanners.grib.grids import read_grid
from icevirt_scanners.grib.octets import UnreadGridError
from icevirt_scanners.grib.sections import Fields

# names of other templates
_OTHER_PACKINGS = {4: "IEEE floats", 41: "PNG", 61: "logarithms", 200: "run lengths"}
_TEMPLATES = 1 + max(BITS)  # a template that is not among them is as one behind them
_LEAST, _MOST = np.ones(_TEMPLATES + 1, np.int64), np.full(_TEMPLATES + 1, 255)
_IS_KNOWN = np.zeros(_TEMPLATES + 1, np.bool_)
for _number, _range in BITS.items():
    _LEAST[_number], _MOST[_number] = _range
    _IS_KNOWN[_number] = True
_NO_BITMAP, _OWN_BITMAP = 255, 0
_LATER = "it is not the first field of its message"


def find_unread(held: DescribedFile) -> Iterator[tuple[str, str]]:
    """Yield fields whose product is not read, one of each parameter, by a path; and why."""
    seen = set[str]()
    for row, cause in held.read.products.refused.items():
        what = (int(held.fields.discipline[row]), *held.fields.product[row, 9:11].tolist())
        path = "/" + "_".join(map(str, ("param", *what, "unread")))
        if path not in seen:
            seen.add(path)
            yield path, f"{cause}, in message {int(held.fields.message[row])}"


def find_grid_refusal(held: DescribedFile, variable: int) -> str:
    """Return why the grid of a variable is not read; "" where it is."""
    numbers = held.fields.grid[held.rows(variable)]
    if held.place is not None and (numbers == held.place.number).all():
        return ""  # nearly always
    grids = np.unique(numbers)
    try:
        kinds = {read_grid(held.fields.grids[number]).kind for number in grids.tolist()}
    except UnreadGridError as error:
        return str(error)
    if len(grids) > 1:
        return f"its fields lie on {len(grids)} grids ({', '.join(sorted(kinds))})"
    if held.place is None or held.place.number != grids[0]:
        return f"it lies on another grid ({kinds.pop()}) than the other variables of this dataset"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Undecoded:
    """Why the codec does not decode the fields of a file as ecCodes does, a row for each."""

    fields: Fields
    packing: NDArray[np.int64]
    bits: NDArray[np.uint8]
    later: NDArray[np.bool_]
    packed: NDArray[np.bool_]
    mapped: NDArray[np.bool_]
    wide: NDArray[np.bool_]
    turned: NDArray[np.bool_]
    any: NDArray[np.bool_]

    @classmethod
    def of(cls, fields: Fields) -> Undecoded:
        """Look at all fields of a file."""
        packing = fields.packing[:, 9].astype(np.int64) << 8 | fields.packing[:, 10]
        bits, later = fields.packing[:, 19], fields.part > 0
        template = np.minimum(packing, _TEMPLATES)
        packed = ~_IS_KNOWN[template]
        mapped = (fields.bitmap != _NO_BITMAP) & (fields.bitmap != _OWN_BITMAP)
        wide = (bits > 0) & ((bits < _LEAST[template]) | (bits > _MOST[template])) & ~packed
        turned = np.array([*map(_is_alternating, fields.grids)], np.bool_)[fields.grid]
        return cls(
            fields=fields,
            packing=packing,
            bits=bits,
            later=later,
            packed=packed,
            mapped=mapped,
            wide=wide,
            turned=turned,
            any=later | packed | mapped | wide | turned,
        )


def _is_alternating(section: bytes) -> bool:
    """Say whether every second row of a grid is reversed in its messages."""
    with suppress(UnreadGridError):
        return read_grid(section).is_alternating
    return False


def find_codec_refusal(undecoded: Undecoded, rows: NDArray[np.int64]) -> str:
    """Return why the codec does not decode a variable of some fields; "" where it does."""
    odd = undecoded.any[rows]
    if not odd.any():
        return ""
    at = int(rows[np.argmax(odd)])
    packing, bits = undecoded.packing, undecoded.bits
    if undecoded.later[at]:
        why = f"{_LATER}, and the codec decodes that one of a chunk"
    elif undecoded.packed[at]:
        name = _OTHER_PACKINGS.get(int(packing[at]), "")
        why = f"packing 5.{int(packing[at])}{f' ({name})' if name else ''}"
    elif undecoded.wide[at]:
        least, most = BITS[int(packing[at])]
        why = f"packing 5.{int(packing[at])} of {int(bits[at])} bits a value, not {least} to {most}"
    elif undecoded.turned[at]:
        why = "rows are scanned in alternating directions"
    else:
        why = f"its bitmap is the predefined one {int(undecoded.fields.bitmap[at])}"
    return f"{why} (message {int(undecoded.fields.message[at])})"


def propose_groups(held: DescribedFile, variable: int) -> Remedy:
    """Return what to do about a variable that lies on another grid than the file, or on several."""
    numbers = np.unique(held.fields.grid[held.rows(variable)]).tolist()
    if len({*numbers} & {grid.number for grid in held.grids()}) < len(numbers):
        return LEAVE_OUT
    return write_remedy(
        "Build a group of each grid: ",
        write_code(f'scan_options={{"grids": "{GridUse.groups}"}}', f"--grids {GridUse.groups}"),
        ".",
    )


def propose_native(path: str, cause: str) -> Remedy:
    """Return what to do about a variable that the codec does not decode."""
    name = path[1:]
    split = "Write each field as a message of its own (grib_copy FILE NEW_FILE). Or have it"
    return write_remedy(
        f"{split if cause.startswith(_LATER) else 'Have it'} read by ecCodes and stored: ",
        write_code(
            f'scan_options={{"variable_policy": {{"{name}": "native"}}}}',
            f"--variable-policy {name}=native",
        ),
        "; or leave it out with ",
        write_option("drop_variables"),
        ".",
    )
