"""Tables of a catalog part that no scan wrote."""

from icevirt.archive.scanned import DEFAULT
from icevirt.catalog.parts import PartRows


def tables_of(outcomes, limits=DEFAULT):
    """Turn outcomes of scans into the rows of a part's tables; references are lazy."""
    rows = PartRows(limits)
    for outcome in outcomes:
        rows.add(outcome)
    return rows.tables()
