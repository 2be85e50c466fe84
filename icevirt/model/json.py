"""The JSON values that metadata is made of, as one type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

type JSON = bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None
type JSONObject = Mapping[str, JSON]
