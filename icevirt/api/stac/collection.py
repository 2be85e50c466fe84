"""Write a dataset as a STAC collection with the datacube extension, version 1.1 of STAC."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np

from icevirt.api.stac.space import WORLD, EarthSpace, kind_of, longest_of
from icevirt.api.stac.times import StepTimes
from icevirt.model.json import JSON
from icevirt.redaction import without_secrets

if TYPE_CHECKING:
    from xarray import DataArray, Dataset

    from icevirt.model.config.containers import ObjectStoreConfig
    from icevirt.storage.protocol import Storage

STAC_VERSION = "1.1.0"
DATACUBE = "https://stac-extensions.github.io/datacube/v2.2.0/schema.json"
STORAGE = "https://stac-extensions.github.io/storage/v2.0.0/schema.json"
VERSION = "https://stac-extensions.github.io/version/v1.2.0/schema.json"
ZARR = "application/vnd.zarr"  # which lets xpystac pass an asset to the engine that it names
ICECHUNK = "application/vnd.zarr+icechunk"
PARQUET = "application/vnd.apache.parquet"
_MOST_VALUES = 1000  # labels of a dimension that are listed
_SPDX = re.compile(
    r"\b(CC0-1\.0|CC-BY(?:-NC)?(?:-SA|-ND)?-[234]\.0|ODbL-1\.0|PDDL-1\.0|MIT|Apache-2\.0)\b",
    re.IGNORECASE,
)
_URL = re.compile(r"https?://[^\s<>\"']+")
_KNOWN = {  # words by which files name licenses of SPDX
    "creativecommons.org/licenses/by/4.0": "CC-BY-4.0",
    "creativecommons.org/licenses/by-sa/4.0": "CC-BY-SA-4.0",
    "creativecommons.org/publicdomain/zero/1.0": "CC0-1.0",
    "cc by 4.0": "CC-BY-4.0",
    "cc-by 4.0": "CC-BY-4.0",
}


def collection_of(
    dataset: Dataset,
    *,
    name: str,
    storage: Storage,
    snapshot_id: str,
    group: str,
    table: str | None,
    space: EarthSpace,
    times: StepTimes | None,
    items: int,
    is_latest: bool,
) -> dict[str, JSON]:
    """Return the collection.

    Args:
        dataset: A group of the repository.
        name: The id.
        storage: Where the repository is.
        snapshot_id: Its version.
        group: Path of the group.
        table: Name of the table of its files, beside the collection; None where there is none.
        space: Where it lies.
        times: When.
        items: Files in the table.
        is_latest: Whether the version is the tip of a branch.
    """
    attrs = dataset.attrs
    extensions = [DATACUBE, VERSION]
    asset: dict[str, JSON] = {
        "href": storage.url,
        "type": ICECHUNK,
        "title": "Icechunk repository",
        "version": snapshot_id,
        "roles": ["data", "references", "virtual", *(["latest-version"] if is_latest else [])],
        "xarray:open_kwargs": {
            "engine": "icevirt",
            "snapshot_id": snapshot_id,
            **({"group": group} if group != "/" else {}),
        },
    }
    for_xarray = {
        **{key: asset[key] for key in ("href", "version", "xarray:open_kwargs")},
        "type": ZARR,
        "title": "The same, as xarray opens it with xpystac and icevirt",
        "roles": ["data"],
    }
    found: dict[str, JSON] = {
        "type": "Collection",
        "stac_version": STAC_VERSION,
        "stac_extensions": extensions,
        "id": name,
        "title": _text(attrs, "title") or name,
        "description": _text(attrs, "summary", "description", "comment", "title") or name,
        "license": _license(attrs),
        "extent": {
            "spatial": {"bbox": [list(space.box() or WORLD)]},
            "temporal": {"interval": [list(times.ends if times else (None, None))]},
        },
        "version": snapshot_id,
        "cube:dimensions": dict(_dimensions(dataset, space, times)),
        "cube:variables": dict(_variables(dataset)),
        "links": list(_links(attrs)),
        "assets": {f"{name}@{snapshot_id}": asset, "xarray": for_xarray},
    }
    if keywords := [
        each.strip() for each in re.split(r"[,;]", _text(attrs, "keywords")) if each.strip()
    ]:
        found["keywords"] = list(dict.fromkeys(keywords))
    if providers := list(_providers(attrs)):
        found["providers"] = providers
    if scheme := scheme_of(storage.url, getattr(storage, "config", None)):
        extensions.append(STORAGE)
        found["storage:schemes"] = {"repository": scheme}
        asset["storage:refs"] = for_xarray["storage:refs"] = ["repository"]
    if table is not None:
        found["assets"]["items"] = {  # type: ignore[index]
            "href": f"./{table}",
            "type": PARQUET,
            "title": f"The {items:,} files that the repository refers to, as STAC items",
            "roles": ["collection-mirror"],
        }
    return found


def _text(attrs: Mapping[Any, Any], *names: str) -> str:
    return next((text for name in names if (text := str(attrs.get(name, "")).strip())), "")


def _license(attrs: Mapping[Any, Any]) -> str:
    text = _text(attrs, "license", "License", "licence", "license_id")
    if found := _SPDX.search(text):
        return found[1]
    lower = text.lower()
    return next((spdx for word, spdx in _KNOWN.items() if word in lower), "other")


def _links(attrs: Mapping[Any, Any]) -> Iterator[JSON]:
    if url := _URL.search(_text(attrs, "license", "License", "licence")):
        yield {"rel": "license", "href": url[0].rstrip(".,;)")}
    if url := _URL.search(_text(attrs, "references", "info_url", "infoUrl")):
        yield {"rel": "about", "href": url[0].rstrip(".,;)")}


def _providers(attrs: Mapping[Any, Any]) -> Iterator[JSON]:
    pairs = (
        (
            "producer",
            ("institution", "creator_institution", "creator_name"),
            ("creator_url", "institution_url"),
        ),
        ("host", ("publisher_name", "publisher_institution"), ("publisher_url",)),
    )
    for role, names, urls in pairs:
        if name := _text(attrs, *names):
            url = _URL.search(_text(attrs, *urls))
            yield {"name": name, "roles": [role]} | ({"url": url[0]} if url else {})


def scheme_of(repo: str, config: ObjectStoreConfig | None) -> dict[str, JSON] | None:
    """Return how the bucket of a repository is reached; None where it is in none."""
    parts = urlsplit(repo)
    if parts.scheme not in ("s3", "gs", "gcs", "az", "abfs", "abfss"):
        return None
    options = {} if config is None or not isinstance(config.options, Mapping) else config.options
    if parts.scheme == "s3":
        server, region = options.get("endpoint_url"), options.get("region")
        where = {"bucket": parts.netloc} | ({"region": str(region)} if region else {})
        if server:
            return {"type": "custom-s3", "platform": without_secrets(str(server)), **where}
        return {"type": "aws-s3", "platform": "https://{bucket}.s3.{region}.amazonaws.com", **where}
    return {
        "type": f"custom-{parts.scheme}",
        "platform": f"{parts.scheme}://{{bucket}}",
        "bucket": parts.netloc,
    }


def _dimensions(
    dataset: Dataset, space: EarthSpace, times: StepTimes | None
) -> Iterator[tuple[str, JSON]]:
    for key, length in dataset.sizes.items():
        name = str(key)
        if times is not None and name == times.dimension:
            yield name, {"type": "temporal", "extent": list(times.ends)}
            continue
        found: dict[str, JSON] = {}
        ends = longest_of(dataset, name) if name in dataset.variables else None
        kind = kind_of(dataset, name)
        if kind and ends is not None:
            found = {"type": "spatial", "axis": kind, "extent": list(ends)}
            if kind != "z":
                found["reference_system"] = space.reference
        elif name in dataset.variables:
            found = {"type": "ordinal", **_labels(dataset[name], ends)}
        else:
            found = {"type": "index", "extent": [0, max(length - 1, 0)]}
        if name in dataset.variables:
            found |= _described(dataset[name])
            if (
                found["type"] == "spatial"
                and "unit" in found
                and kind != "z"
                and "degree" in str(found["unit"])
            ):
                del found["unit"]  # that of the reference system
        yield name, found


def _labels(values: DataArray, ends: tuple[float, float] | None) -> dict[str, JSON]:
    is_number = values.dtype.kind in "iuf" and ends is not None
    if values.size <= _MOST_VALUES and (not is_number or np.isfinite(values.values).all()):
        some = values.values.tolist()
        return {"values": some if is_number else list(map(str, some))}
    if ends is None:
        return {"values": list(map(str, values.values[:_MOST_VALUES].tolist()))}
    return {"extent": list(ends)}


def _variables(dataset: Dataset) -> Iterator[tuple[str, JSON]]:
    for key, variable in dataset.variables.items():
        name = str(key)
        if name in dataset.dims:
            continue
        encoding = variable.encoding
        chunks = encoding.get("chunks") or encoding.get("preferred_chunks") or ()
        found: dict[str, JSON] = {
            "dimensions": list(map(str, variable.dims)),
            "type": "auxiliary" if name in dataset.coords or not variable.dims else "data",
            "shape": list(variable.shape),
            "chunks": list(chunks.values() if isinstance(chunks, Mapping) else chunks),
            "attrs": _plain(variable.attrs),
        }
        yield name, found | _described(dataset[key])


def _described(variable: DataArray) -> dict[str, JSON]:
    found: dict[str, JSON] = {}
    if text := _text(variable.attrs, "long_name", "standard_name", "description"):
        found["description"] = text
    if unit := _text(variable.attrs, "units"):
        found["unit"] = unit
    return found


def _plain(attrs: Mapping[Any, Any]) -> JSON:
    """Return attributes as JSON; numbers that JSON lacks as text."""

    def plain(value: Any) -> JSON:
        if isinstance(value, np.generic | np.ndarray):
            value = value.tolist()
        if isinstance(value, Mapping):
            return {str(key): plain(each) for key, each in value.items()}
        if isinstance(value, Sequence) and not isinstance(value, str | bytes):
            return [plain(each) for each in value]
        if isinstance(value, float) and not np.isfinite(value):
            return str(value)
        return value if isinstance(value, str | int | float | bool | None) else str(value)

    return {str(key): plain(value) for key, value in attrs.items()}
