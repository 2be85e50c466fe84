"""Build the documentation site: ``just site``.

Pages are the documents of this repository, as they are read there. What is derived from the code
takes the place of comments like ``<!-- site: commands -->``. Zensical makes HTML of them, without a
warning, and every link of the HTML is followed.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import command_pages
import link_check
import python_pages
import search_check

from icevirt.display.explanations import explanations

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "site"
PAGES = BUILD / "pages"
HTML = BUILD / "html"

# Documents that lie beside the folder of documents, by their path; `examples` is made of programs.
OUTSIDE = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "RELEASING.md": "releasing.md",
    "SECURITY.md": "reporting.md",
    "examples": "examples.md",
    "examples/web": "examples.md",
    "docs/decisions": "decisions/index.md",
}
_DECISION = re.compile(r"decisions/[0-9]")
_MARK = re.compile(r"^<!-- site: (\w+) -->\n", re.MULTILINE)
_LINK = re.compile(r"(\]\(|<img src=\"|srcset=\"|href=\")(?!https?:|#|mailto:)([^)#\"\s]+)")
_BAR = "\\|"  # of a table, within a cell
_CODE = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)


def main() -> int:
    """Build the site; return 1 where it has a warning or a broken link."""
    shutil.rmtree(BUILD, ignore_errors=True)
    stage()
    zensical = [sys.executable, "-m", "zensical", "build", "--strict", "-f", "zensical.toml"]
    if subprocess.run(zensical, check=False, cwd=ROOT).returncode:
        return 1
    arrange_search()
    wrong = [*link_check.broken(HTML), *search_check.misplaced(HTML)]
    sys.stderr.write("".join(f"{line}\n" for line in wrong))
    sys.stdout.write(f"{sum(1 for _ in HTML.rglob('*.html'))} pages in {HTML / 'index.html'}\n")
    return bool(wrong)


def arrange_search() -> None:
    """Let the search answer with guides before reference, and with the list of decisions only.

    Of pages in which words stand equally early, the first one of the index is the first answer.
    """
    path = HTML / "search.json"
    index = json.loads(path.read_text())
    nav = json.dumps(tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"])
    place = {name: at for at, name in enumerate(re.findall(r'"([^"]+)\.md"', nav))}
    held = [each for each in index["items"] if not _DECISION.match(each["location"])]
    held.sort(key=lambda each: place.get(each["location"].partition(".html")[0], len(place)))
    index["items"] = held
    path.write_text(json.dumps(index, separators=(",", ":")))


def stage() -> None:
    """Write the Markdown of all pages."""
    for source, target in sources().items():
        path = PAGES / target
        path.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".md":
            text = relinked(generated(source.read_text()), source, Path(target))
            path.write_text(piped(text))
        else:
            shutil.copyfile(source, path)
    for name, text in made():
        path = PAGES / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(piped(text))


def sources() -> dict[Path, str]:
    """Return the files that become pages or lie beside them, with their place in the site."""
    docs = ROOT / "docs"
    found = [*docs.glob("*.md"), *docs.glob("decisions/*.md"), *docs.glob("figures/*.svg")]
    beside = {docs / "site" / "site.css": "site.css"}
    return (
        {path: path.relative_to(docs).as_posix() for path in sorted(found)}
        | beside
        | {ROOT / name: page for name, page in OUTSIDE.items() if name.endswith(".md")}
    )


def made() -> Iterator[tuple[str, str]]:
    """Yield the pages that are made as a whole."""
    for name, _, text in python_pages.pages():
        yield f"python/{name}.md", text
    yield "decisions/index.md", decisions()
    yield "examples.md", examples()


def decisions() -> str:
    """Return a list of the decisions, by their titles."""
    lines = ["# Decisions", "", "Why icevirt is as it is, and what was rejected.", ""]
    for path in sorted((ROOT / "docs" / "decisions").glob("*.md")):
        title = path.read_text().partition("\n")[0].removeprefix("# ")
        number, _, rest = title.partition(". ")
        lines.append(f"- {number}: [{rest}]({path.name})")
    return "\n".join([*lines, ""])


def examples() -> str:
    """Return the programs of the folder with examples."""
    parts = [
        "# Examples",
        "",
        "Programs over real files. Each runs as it is, and in the tests.",
        "",
    ]
    folder = ROOT / "examples"
    for path in sorted(folder.glob("*.ipynb")):
        parts += [f"## Notebook {path.name}", "", *cells(json.loads(path.read_text())), ""]
    page = [folder / "web" / name for name in ("index.html", "map.js", "isolate.js", "serve.py")]
    for path in [*sorted(folder.glob("*.py")), *page]:
        language = {".py": "python", ".js": "javascript"}.get(path.suffix, "html")
        name = path.relative_to(folder).as_posix()
        parts += [f"## {name}", "", f"```{language}", path.read_text().rstrip(), "```", ""]
    return "\n".join(parts)


def cells(notebook: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a notebook, headings below its own."""
    for cell in notebook["cells"]:
        text = "".join(cell["source"]).rstrip()
        if cell["cell_type"] == "code":
            yield from ("```python", text, "```", "")
        else:
            yield from (re.sub("^#", "###", text, flags=re.MULTILINE), "")


def _errors() -> str:
    codes = explanations().codes
    rows = [f"| [{each.code}](#{each.code}) | {each.summary} |" for each in codes]
    sections = [f"## {each.code}\n\n{each.text}\n" for each in codes]
    return "\n".join(["| code | means |", "|---|---|", *rows, "", *sections])


def _python() -> str:
    rows = [
        f"- [{title}](python/{name}.md): "
        + ", ".join(re.findall(r"^## \S+?\.(\w+) \{", text, re.MULTILINE))
        for name, title, text in python_pages.pages()
    ]
    return "\n".join([*rows, ""])


def _benchmarks() -> str:
    rows = ["| program | measures |", "|---|---|"]
    for path in sorted((ROOT / "bench").glob("*.py")):
        doc = ast.get_docstring(ast.parse(path.read_text())) or ""
        if "__main__" in path.read_text():
            first = " ".join(doc.partition("\n\n")[0].split())
            rows.append(f"| `bench/{path.name}` | {first.partition('. ')[0].rstrip('.:')} |")
    return "\n".join([*rows, ""])


GENERATED: dict[str, Callable[[], str]] = {
    "benchmarks": _benchmarks,
    "commands": command_pages.page,
    "errors": _errors,
    "python": _python,
}


def generated(text: str) -> str:
    """Put what is derived from the code in the place of its mark."""
    return _MARK.sub(lambda found: GENERATED[found[1]](), text)


def relinked(text: str, source: Path, target: Path) -> str:
    """Change links between documents to links between pages."""
    pieces = _CODE.split(text)
    for at in range(0, len(pieces), 2):  # between pieces of code
        pieces[at] = _LINK.sub(lambda found: found[1] + _page(found[2], source, target), pieces[at])
    return "".join(pieces)


def piped(text: str) -> str:
    """Write code of tables that holds a bar as HTML, because Markdown shows its backslash here."""

    def code(found: re.Match[str]) -> str:
        return f"<code>{escape(found[1]).replace(_BAR, '&#124;')}</code>"

    return re.sub(r"(?<=[ ,(])`([^`\n]*\\\|[^`\n]*)`", code, text)


def _page(link: str, source: Path, target: Path) -> str:
    path = Path(os.path.normpath(source.parent / link))
    name = path.relative_to(ROOT).as_posix()
    page = OUTSIDE.get(name) or name.removeprefix("docs/")
    return os.path.relpath(page, target.parent).replace(os.sep, "/")


if __name__ == "__main__":
    sys.exit(main())
