"""Explain the codes of errors: what each means, its usual causes, and the remedies.

``explanations.md`` beside this module holds the text, a section for each code. The page on
troubleshooting in the documentation is made of the same file.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from icevirt import errors
from icevirt.errors import NotFoundError


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a code of an error means, and what helps."""

    code: str
    summary: str
    """The first sentence."""

    text: str
    """All of it, as Markdown."""

    def __rich__(self) -> RenderableType:
        """Draw headings in bold, and what can be pasted indented."""
        return Group(Text(self.code, style="bold"), *_draw(self.text))


@dataclass(frozen=True, slots=True)
class Explanations:
    """All codes of errors, with their first sentences."""

    codes: tuple[Explanation, ...]

    def __rich__(self) -> RenderableType:
        """Draw a line for each code."""
        table = Table.grid(padding=(0, 2), pad_edge=False)
        table.add_column(no_wrap=True)
        for each in self.codes:
            table.add_row(Text(each.code, style="bold"), Text(each.summary))
        return Group(table, Text("\nOne of them in full: icevirt explain CODE"))


@cache
def explanations() -> Explanations:
    """Return what is known of every code, in the order of the error tree, the root last."""
    text = files("icevirt.display").joinpath("explanations.md").read_text(encoding="utf-8")
    sections = (each.partition("\n") for each in f"\n{text}".split("\n## ")[1:])
    return Explanations(tuple(_explanation(code, body.strip()) for code, _, body in sections))


def _explanation(code: str, body: str) -> Explanation:
    first = " ".join(body.partition("\n\n")[0].split())
    return Explanation(code, f"{first.partition('. ')[0].rstrip('.')}.", body)


def explanation(named: str) -> Explanation:
    """Return what is known of a code, or of the code of an error class.

    Raises:
        NotFoundError: No error has this code; the message names near ones.
    """
    known = {each.code: each for each in explanations().codes}
    kind = getattr(errors, named.rpartition(".")[2], None)
    code = getattr(kind, "code", named.strip().lower().replace("_", "-"))
    if code in known:
        return known[code]
    near = difflib.get_close_matches(code, known, n=3, cutoff=0.5)
    meant = f"Did you mean {', '.join(f'`icevirt explain {each}`' for each in near)}? "
    rest = "`icevirt explain` lists all codes."
    raise NotFoundError("no error has this code", do=meant * bool(near) + rest, code=named)


def _draw(text: str) -> Iterator[Text]:
    for block in f"{text}\n".split("\n\n"):
        if block.startswith("```"):
            body = block.strip().split("\n")[1:-1]
            yield Text("\n".join(["", *(f"    {line}".rstrip() for line in body)]), style="cyan")
        elif block.startswith("- "):
            for item in block.strip().removeprefix("- ").split("\n- "):
                yield Text(f"  - {' '.join(item.split())}")
        elif block.strip():
            yield Text("")
            yield Text.assemble(*_pieces(" ".join(block.split())))


def _pieces(line: str) -> Iterator[tuple[str, str]]:
    """Yield the texts of a line with their styles: between ``**`` it is bold."""
    for at, piece in enumerate(line.split("**")):
        yield piece, "bold" if at % 2 else ""
