"""Wrap text that no log, message or representation may show."""

from __future__ import annotations

from typing import Any, Never


class Secret:
    """A password, key or token.

    It compares and pickles, because executors need it; nothing but `reveal` shows it.
    """

    __slots__ = ("_text",)
    _text: str

    def __init__(self, text: str) -> None:
        object.__setattr__(self, "_text", text)

    def reveal(self) -> str:
        """Return the text, to hand it to the library that signs requests and to nobody else."""
        return self._text

    def __repr__(self) -> str:
        return "<secret>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __setattr__(self, name: str, value: object) -> Never:
        raise AttributeError("a secret is immutable")

    def __reduce__(self) -> tuple[Any, ...]:
        return Secret, (self._text,)


def secret(value: str | Secret) -> Secret:
    """Return the value as a secret."""
    return value if isinstance(value, Secret) else Secret(value)
