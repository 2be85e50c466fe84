"""Read the items of catalogs as lists of files: of STAC, and granules of NASA's CMR.

CMR answers in two forms, which its clients save: UMM-G (``granules.umm_json``, earthaccess), and
the older feed (``granules.json``, python-cmr). A granule may lie at two addresses, named as
earthaccess names them: ``external`` (``https://``) and ``direct`` (the bucket, for its region).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urljoin, urlsplit

from icevirt.connect.urls import as_local_path, file_url, is_url, spell
from icevirt.objects.source_lists.names import SUFFIXES
from icevirt.objects.source_lists.rows import Row, bad_row, row

_TYPES = ("netcdf", "hdf", "x-hdf5")
"""What the media types of NetCDF and HDF5 files have in their names."""

_ACCESS = {"https": "external", "http": "external", "s3": "direct"}
_DATA = ("GET DATA", "GET DATA VIA DIRECT ACCESS")  # some archives call both the first
_RELATIONS = "esipfed.org/ns/fedsearch/"  # before what a link of the feed is: data#, s3#


def items_in(found: Any) -> list[Any] | None:
    """Return the items of an item or a collection of items; None where a JSON value is neither."""
    if isinstance(found, list):
        return found if found and all(map(_is_granule, found)) else None
    if not isinstance(found, Mapping):
        return None
    if found.get("type") == "FeatureCollection":
        features = found.get("features")
        return features if isinstance(features, list) else [None]
    if found.get("type") == "Feature" or _is_granule(found):
        return [found]
    feed = found.get("feed")
    held = feed.get("entry") if isinstance(feed, Mapping) else found.get("items")
    return held if held == [] else items_in(held)


def addresses_in(found: Any) -> list[str] | None:
    """Return the addresses of a JSON list of these, or of the lists of granules; None: no such."""
    if not isinstance(found, list) or not found:
        return None
    flat = [each for some in found for each in (some if isinstance(some, list) else [some])]
    return flat if flat and all(isinstance(each, str) and each for each in flat) else None


def _is_granule(found: Any) -> bool:
    return isinstance(found, Mapping) and (
        _umm_of(found) is not None
        or any(_RELATIONS in str(each.get("rel")) for each in _mappings(found.get("links")))
    )


def _umm_of(found: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the UMM-G of a granule: with what CMR says beside it, or alone."""
    umm = found.get("umm", found)
    is_alone = umm is found and not {"GranuleUR", "RelatedUrls"} <= found.keys()
    return umm if isinstance(umm, Mapping) and not is_alone else None


def _mappings(found: Any) -> list[Mapping[str, Any]]:
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []


def row_of_item(item: Any, asset: str | None, source: str, number: int) -> Row:
    """Return the file that an item stands for.

    Args:
        item: The item, or granule.
        asset: Of an item, the name of the asset; by default the one with the role "data", or the
            only one of a type that NetCDF or HDF5 files have. Of a granule, the access:
            ``external``, the default, or ``direct``.
        source: Where the item was found.
        number: The line or item there.

    Raises:
        InvalidInputError: It has no such asset, or it is not clear which is meant.
    """
    if _is_granule(item):
        return _row_of_granule(item, asset or "external", source, number)
    assets = item.get("assets") if isinstance(item, Mapping) else None
    if not isinstance(assets, Mapping) or not all(
        isinstance(each, Mapping) for each in assets.values()
    ):
        raise bad_row("a STAC item has no assets", source, number)
    name = _choose(item, assets, asset, source, number)
    found = assets[name]
    href = found.get("href")
    if not isinstance(href, str) or not href:
        raise bad_row("an asset of a STAC item has no href", source, number, asset=name)
    return row((_absolute(href, item, source), found.get("file:size"), None, None), source, number)


def _choose(
    item: Mapping[str, Any], assets: Mapping[str, Any], asset: str | None, source: str, number: int
) -> str:
    if asset is not None:
        names = [asset] if asset in assets else []
    else:
        names = [name for name in assets if "data" in (assets[name].get("roles") or ())]
        kinds = {name: str(each.get("type", "")).lower() for name, each in assets.items()}
        typed = [name for name in assets if any(each in kinds[name] for each in _TYPES)]
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


def _absolute(href: str, item: Mapping[str, Any], source: str) -> str:
    """Resolve an href against the item's own link to itself, or where it was found."""
    links = _mappings(item.get("links"))
    own = next((each.get("href") for each in links if each.get("rel") == "self"), None)
    return resolve(href, spell(own) if isinstance(own, str) and is_url(spell(own)) else source)


def resolve(href: str, source: str) -> str:
    """Return the address that a document means by a relative one; as it is if on stdin."""
    plain = spell(href)
    if is_url(plain) or plain != href or source == "-":
        return plain
    base = source if is_url(source) else file_url(as_local_path(source))
    scheme, _, rest = base.partition("://")
    if scheme in ("http", "https", "file"):
        return urljoin(base, href)
    # the standard library knows the rules for some schemes only
    return f"{scheme}://" + urljoin(f"https://{rest}", href).removeprefix("https://")


def _row_of_granule(granule: Mapping[str, Any], access: str, source: str, number: int) -> Row:
    """Return the file of a granule: of several, the one with the suffix of a format."""
    links = [spell(url) for url in _links_of(granule)]
    known = [url for url in links if urlsplit(url).path.lower().endswith(SUFFIXES)]
    there = {
        name: list(dict.fromkeys(url for url in known or links if _access_of(url) == name))
        for name in ("external", "direct")
    }
    found = there.get(access, [])
    if len(found) != 1:
        what = f"has {len(found)} files" if access in there else "knows no such access"
        raise bad_row(
            f"a granule {what} (--asset NAME chooses one)",
            source,
            number,
            granule=_name_of(granule),
            asset=access,
            there=there,
        )
    return row((found[0], None, None, None), source, number)


def _links_of(granule: Mapping[str, Any]) -> Iterator[str]:
    """Yield the addresses of the data: neither of services, nor of the whole collection."""
    umm = _umm_of(granule)
    if umm is not None:
        links = _mappings(umm.get("RelatedUrls"))
        yield from (str(each.get("URL")) for each in links if each.get("Type") in _DATA)
        return
    for each in _mappings(granule.get("links")):
        if str(each.get("rel")).endswith(("/data#", "/s3#")) and not each.get("inherited"):
            yield str(each.get("href"))


def _access_of(url: str) -> str:
    return _ACCESS.get(urlsplit(url).scheme, "")


def _name_of(granule: Mapping[str, Any]) -> Any:
    umm = _umm_of(granule)
    return granule.get("title") if umm is None else umm.get("GranuleUR")
