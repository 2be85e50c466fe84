"""Follow a page as its reader does: run its commands and its Python in order, and compare.

Commands stand in blocks without a language, behind ``$ ``, above what they print. What Python
prints stands in a block of text below it. ICEVIRT_WRITE_PAGE=1 writes what came out into the page.
"""

import contextlib
import io
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_BY_DEFAULT = "executor    processes"
_VARYING = (
    (r"\b[0-9A-HJKMNP-TV-Z]{20}\b", "ID"),
    (r"\b[0-9a-f]{20}\b", "BUILD"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)", "TIME"),
    (r"(?:[\d,.]+ ?(?:ms|s|min|h|d|days?|hours?|minutes?|seconds?)\b ?)+", "T "),
    (r"\b[\d,.]+ (?:B|KiB|MiB)\b", "SIZE"),
    (r"(executor +)\S+", r"\1E"),
    (r" +$", ""),
    (r" {2,}", "  "),
    (r"─+", "─"),
)


def same(text: str) -> str:
    """Return text without what differs from run to run."""
    for pattern, put in _VARYING:
        text = re.sub(pattern, put, text, flags=re.MULTILINE)
    return text.strip()


def follow(
    name: str,
    run: Callable[..., tuple[object, str, str]],
    here: Path,
    names: dict[str, object],
    begin: str = "# ",
    end: str = "",
) -> None:
    """Run the blocks of a page in the working directory; its paths are shown as ``/data``.

    Those between two headings, if they are given.
    """
    path = DOCS / name
    page = path.read_text()
    first, last = (
        page.index(f"{line}\n" if line != "# " else line) for line in (begin, end or "# ")
    )
    printed, out = "", []
    for block in _BLOCK.finditer(page, first, last if end else len(page)):
        language, text = block.groups()
        if language == "python":
            code = compile("\n" * page[: block.start(2)].count("\n") + text, str(path), "exec")
            with contextlib.redirect_stdout(io.StringIO()) as stream:
                exec(code, names)
            printed = stream.getvalue()
        elif language == "text" and printed:
            out.append((block.span(2), printed, text))
        elif not language and text.startswith("$ "):
            out.append((block.span(2), _transcript(text, run, str(here)), text))
    assert out
    if os.environ.get("ICEVIRT_WRITE_PAGE"):
        for (start, end), found, _ in reversed(out):
            page = page[:start] + found + page[end:]
        path.write_text(page)
    else:
        for _, found, shown in out:
            left, right = same(found).splitlines(), same(shown).splitlines()
            assert left == right, [*set(left) ^ set(right)]


def _transcript(block: str, run: Callable[..., tuple[object, str, str]], here: str) -> str:
    said = ""
    for line in re.findall(r"^\$ icevirt (.*)$", block, re.MULTILINE):
        status, out, err = run(*shlex.split(line, comments=True))
        assert status in (0, 1, 5), err
        # progress is on stderr; what tests run in their own process users run in others
        output = (out if status == 0 else out + err).replace("executor    in-process", _BY_DEFAULT)
        lines = [f"$ icevirt {line}", *map(str.rstrip, output.splitlines())]
        said += "\n".join(lines).replace(here, "/data") + "\n"
    return said
