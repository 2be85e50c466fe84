"""The JSON values that metadata is made of, as one type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

type JSON = None | bool | int | float | str | Sequence[JSON] | Mapping[str, JSON]
type JSONObject = Mapping[str, JSON]
