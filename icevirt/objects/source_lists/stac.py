"""Read STAC items as rows of a list: the asset that is the file, and its properties."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urljoin

from icevirt.connect.urls import as_local_path, file_url, is_url
from icevirt.objects.source_lists.rows import Row, bad_row, row

_TYPES = ("netcdf", "hdf", "x-hdf5")
"""What the media types of NetCDF and HDF5 files have in their names."""


def is_stac(found: Any) -> bool:
    """Say whether a JSON value is an item or a collection of items."""
    return isinstance(found, Mapping) and found.get("type") in ("Feature", "FeatureCollection")


def items_in(found: Mapping[str, Any]) -> list[Any]:
    """Return the items of an item or a collection of items."""
    if found["type"] == "Feature":
        return [found]
    features = found.get("features")
    return features if isinstance(features, list) else [None]


def row_of_item(item: Any, asset: str | None, source: str, number: int) -> Row:
    """Return the file that an item stands for.

    Args:
        item: The item.
        asset: The name of the asset; by default the one with the role "data", or the only one of a
            type that NetCDF or HDF5 files have.
        source: Where the item was found.
        number: The line or item there.

    Raises:
        InvalidInputError: It has no such asset, or it is not clear which is meant.
    """
    assets = item.get("assets") if isinstance(item, Mapping) else None
    if not isinstance(assets, Mapping) or not all(
        isinstance(each, Mapping) for each in assets.values()
    ):
        raise bad_row("a STAC item has no assets", source, number)
    name = _chosen(item, assets, asset, source, number)
    found = assets[name]
    href = found.get("href")
    if not isinstance(href, str) or not href:
        raise bad_row("an asset of a STAC item has no href", source, number, asset=name)
    return row((_absolute(href, item, source), found.get("file:size"), None, None), source, number)


def _chosen(
    item: Mapping[str, Any], assets: Mapping[str, Any], asset: str | None, source: str, number: int
) -> str:
    if asset is not None:
        names = [asset] if asset in assets else []
    else:
        names = [name for name in assets if "data" in (assets[name].get("roles") or ())]
        typed = [name for name in assets if _is_typed(assets[name])]
        both = [name for name in names if name in typed]
        names = both or names or typed
    if len(names) != 1:
        what = "has no such asset" if asset is not None else "does not say which asset is meant"
        raise bad_row(
            f"a STAC item {what} (--asset NAME chooses one)",
            source,
            number,
            item=item.get("id"),
            asset=asset,
            there=sorted(assets),
        )
    return names[0]


def _is_typed(asset: Mapping[str, Any]) -> bool:
    kind = str(asset.get("type", "")).lower()
    return any(each in kind for each in _TYPES)


def _absolute(href: str, item: Mapping[str, Any], source: str) -> str:
    """Resolve an href against the item's own link to itself, or where it was found."""
    if is_url(href):
        return href
    links = item.get("links")
    own = next(
        (
            link.get("href")
            for link in (links if isinstance(links, list) else ())
            if isinstance(link, Mapping) and link.get("rel") == "self"
        ),
        None,
    )
    if isinstance(own, str) and is_url(own):
        base = own
    elif source == "-":
        return href
    else:
        base = source if is_url(source) else file_url(as_local_path(source))
    return _joined(base, href)


def _joined(base: str, href: str) -> str:
    """Join URLs of any scheme; the standard library knows the rules for some only."""
    scheme, _, rest = base.partition("://")
    if scheme in ("http", "https", "file"):
        return urljoin(base, href)
    return f"{scheme}://" + urljoin(f"https://{rest}", href).removeprefix("https://")
