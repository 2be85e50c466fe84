"""Show values as icechunk does: in one line per field, as an expression, and as HTML."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from textwrap import indent
from typing import Any, ClassVar, Self

from icevirt.escaping import escape_html, escape_lines


class Shown:
    """A value with icechunk's `repr`, `str` and HTML."""

    _home: ClassVar[str]
    _is_expression: ClassVar[bool] = False  # `repr` can be evaluated
    _defaults: ClassVar[Mapping[str, Any]] = {}  # what None stands for, in `str` and HTML

    def _title(self) -> str:
        return f"{self._home}.{type(self).__name__}"

    def _show_fields(self) -> Mapping[str, Any]:
        """Return the fields in the order in which they are shown."""
        return {name: getattr(self, name) for name in self._names()}

    @classmethod
    def _names(cls) -> list[str]:
        kind: Any = cls
        return [each.name for each in fields(kind)]

    @classmethod
    def of(cls, value: Any) -> Self:
        """Return a value of icevirt's, shown as icechunk's."""
        found = {each.name: getattr(value, each.name) for each in fields(value)}
        return value if isinstance(value, cls) else cls(**found)

    def __repr__(self) -> str:
        return self._expression() if self._is_expression else str(self)

    def _expression(self) -> str:
        lines = [f"{name}={expression(value)}," for name, value in self._show_fields().items()]
        inside = "".join(f"\n{indent(line, '    ')}" for line in lines)
        return f"{self._title()}({inside}\n)" if lines else f"{self._title()}()"

    def __str__(self) -> str:
        lines = [f"<{self._title()}>"]
        for name, value in self._show_fields().items():
            value_shown, note = self._or_default(name, value)
            if isinstance(value_shown, Shown):
                lines += [f"{name}:", indent(str(value_shown).rstrip("\n"), "    ")]
            else:
                lines.append(f"{name}: {plain(value_shown)}{note}")
        return "\n".join(lines) + "\n"

    def _repr_html_(self) -> str:
        parts = []
        for name, value in self._show_fields().items():
            value_shown, note = self._or_default(name, value)
            if isinstance(value_shown, Shown):
                inner = value_shown._repr_html_()
                parts.append(f"<details><summary>{escape_html(name)}</summary>{inner}</details>")
            else:
                parts.append(f"<div>{escape_html(name)}: {_markup(plain(value_shown))}{note}</div>")
        title = escape_html(self._title())
        return f'<div class="icechunk-repr"><div>{title}</div>{"".join(parts)}</div>'

    def _or_default(self, name: str, value: Any) -> tuple[Any, str]:
        """Return what stands for a field, and the remark that it is the default."""
        if value is not None or self._defaults.get(name) is None:
            return value, ""
        value_shown = self._defaults[name]
        return value_shown, "" if isinstance(value_shown, Shown) else " (default)"


def expression(value: Any) -> str:
    """Return a value as it stands in an expression."""
    if isinstance(value, str) and not isinstance(value, Enum):
        return json.dumps(value)
    return plain(value)


def plain(value: Any) -> str:
    """Return a value as it stands in a line."""
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Shown):
        return repr(value)
    return escape_lines(value) if isinstance(value, str) else repr(value)


def as_html(text: str) -> str:
    """Return what a value shows as HTML."""
    title, _, rest = text.partition("\n")
    title = escape_html(title.strip("<>"))
    return f'<div class="icechunk-repr"><div>{title}</div><pre>{_markup(rest)}</pre></div>'


def _markup(text: str) -> str:
    return "\n".join(map(escape_html, text.split("\n")))
