"""Make text of others safe to show: on a terminal, in HTML and in JSON.

Names, attributes, messages and errors hold text of repositories and files. A terminal would obey
control characters in it, a reader would see text that direction marks turned around, and a browser
would run tags. Whatever is shown goes through here.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


class Pictured:
    """A value whose text is what a command prints, and which notebooks show as HTML of the same.

    `icevirt.display` describes it, which is above all these. Like `View.store`, this reference
    points up, and is resolved by name on first use.
    """

    __slots__ = ()

    def __str__(self) -> str:
        return str(import_module("icevirt.display.render").as_text(self))

    def _repr_html_(self) -> str:
        return str(import_module("icevirt.display.picture").picture(self))


def escape_line(value: object) -> str:
    r"""Return ``value`` as one line of text without control characters: they become ``\x1b``.

    So do marks that cannot be seen: direction, zero width, private use, lone surrogates.
    """
    text = str(value)
    return text if text.isprintable() else "".join(map(_escape, text))


def escape_lines(value: object) -> str:
    """Return ``value`` as `escape_line` does, and leave its lines apart."""
    return "\n".join(map(escape_line, str(value).split("\n")))


def escape_html(value: object) -> str:
    """Return ``value`` as text of HTML, as one line; quotes are escaped, too."""
    from html import escape

    return escape(escape_line(value))


def escape_json(
    document: object, *, indent: int | None = None, default: Callable[[Any], str] | None = None
) -> str:
    """Return a value as JSON whose texts are safe on a terminal and the same to programs."""
    import json

    text = json.dumps(document, indent=indent, default=default, ensure_ascii=False)
    # letters of other languages stay as they are; what cannot be seen stands in strings alone
    return "\n".join(
        line if line.isprintable() else "".join(map(_escape_in_json, line))
        for line in text.split("\n")
    )


def _is_seen(letter: str) -> bool:
    from unicodedata import category

    return letter.isprintable() or category(letter) == "Zs"  # spaces of other widths


def _escape(letter: str) -> str:
    return letter if _is_seen(letter) else letter.encode("unicode_escape").decode()


def _escape_in_json(letter: str) -> str:
    if _is_seen(letter):
        return letter
    units = letter.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
