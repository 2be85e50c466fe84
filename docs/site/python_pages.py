"""Write the pages of the site about Python: every public name, from signatures and docstrings."""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import itertools
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

import icevirt
import icevirt.errors
import icevirt.spark
import icevirt.xarray
from icevirt.archive.options import Options, declare

# Pages by title: modules whose public names they hold, by the beginning of their names.
PAGES = {
    "building": (
        "Build, append, update",
        ("api.build", "api.append", "api.update", "api.plan", "api.export"),
    ),
    "scanning": ("Scans and catalogs", ("api.scan", "api.views.catalog_view", "archive.scanned")),
    "options": (
        "Options",
        (
            "api.commit_options",
            "planning.combine.options",
            "scan",
            "planning.edits.file_edits",
            "api.recipe",
        ),
    ),
    "upkeep": (
        "Move, verify, operate",
        (
            "api.materialize",
            "api.relocate",
            "api.upkeep",
            "api.verify",
            "api.repository",
            "repo.maintenance",
            "repo.v1",
        ),
    ),
    "history": ("History", ("api.history", "versioning", "repo.history")),
    "reports": ("Plans and reports", ("archive", "display")),
    "views": ("Opening, pages, progress", ("api.views",)),
    "repository": ("Repositories and sessions", ("repo", "access", "model")),
    "config": ("Configuration of a repository", ("model.config",)),
    "storage": ("Storage and credentials", ("storage", "connect")),
    "errors": ("Errors", ("errors",)),
}
_EXAMPLES = re.compile(r"^Examples:\n((?:    .*\n?|\n)+)", re.MULTILINE)
_SECTION = re.compile(r"^(Args|Returns|Yields|Raises|Attributes|Example|Examples):$", re.MULTILINE)
_TITLES = {"Args": "Parameters"}


@cache
def pages() -> tuple[tuple[str, str, str], ...]:
    """Return name, title and text of each page."""
    return tuple(_pages())


def _pages() -> Iterator[tuple[str, str, str]]:
    homes = {name: _home(getattr(icevirt, name)) for name in sorted(icevirt.__all__)}
    for page, (title, _) in PAGES.items():
        names = [name for name, home in homes.items() if _page_of(name, home) == page]
        if page == "errors":
            names = sorted({*names, *_errors()})
        yield page, title, _page(title, icevirt, names, "icevirt")
    for module, title in ((icevirt.spark, "On Spark"), (icevirt.xarray, "For xarray")):
        page = module.__name__.rpartition(".")[2]
        yield page, title, _page(title, module, sorted(module.__all__), module.__name__)


def _errors() -> list[str]:
    found = vars(icevirt.errors).items()
    return [name for name, each in found if _is_error(each) and not name.startswith("_")]


def _is_error(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, icevirt.errors.IcevirtError)


def _home(value: Any) -> str:
    """Return the module of a public name, without the name of the package."""
    return str(getattr(value, "__module__", "")).removeprefix("icevirt.")


def _page_of(name: str, home: str) -> str:
    """Return the page with the longest matching beginning of a module's name."""
    home = next(
        (m.removeprefix("icevirt.") for m, names in _exports() if name in names.split()), home
    )
    fitting = [
        (len(begin), page)
        for page, (_, begins) in PAGES.items()
        for begin in begins
        if home == begin or home.startswith(f"{begin}.")
    ]
    return max(fitting)[1] if fitting else ""


def _exports() -> Iterator[tuple[str, str]]:
    yield from icevirt._EXPORTS.items()  # noqa: SLF001 - its table


def _page(title: str, module: ModuleType, names: list[str], prefix: str) -> str:
    # classes first; errors are named in `icevirt.errors`, some of them in `icevirt` too
    shown = {name: getattr(module, name, None) or getattr(icevirt.errors, name) for name in names}
    order = sorted(shown, key=lambda name: (not inspect.isroutine(shown[name]), name))
    parts = [f"# {title}\n", *(_entry(name, shown[name], prefix) for name in order)]
    return "\n".join(parts)


def _entry(name: str, value: Any, prefix: str) -> str:
    where = prefix if hasattr(icevirt, name) or prefix != "icevirt" else "icevirt.errors"
    head = f"## {where}.{name} {{ #{name} }}\n"
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        return f"{head}\nA value: `{value!r}`.\n"
    called = "" if _is_only_returned(value) else _signature(name, value)
    body = [head, called, _prose(inspect.getdoc(value) or "")]
    if inspect.isclass(value):
        if _is_error(value):
            body.append(f"Code: [`{value.code}`](../errors.md#{value.code}).\n")
        body += [_members(name, value)]
    return "\n".join(part for part in body if part)


def _is_only_returned(value: Any) -> bool:
    """Say whether users get values of a class from calls, and make none."""
    return inspect.isclass(value) and (
        _home(value).startswith("archive.")
        or value.__name__.endswith(("Report", "Summary", "Info"))
    )


def _signature(name: str, value: Any) -> str:
    if inspect.isclass(value) and (issubclass(value, (enum.Enum, BaseException))):
        return ""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    parameters = [
        (p.kind, _parameter(p)) for p in found.parameters.values() if p.name not in ("self", "cls")
    ]
    words: list[str] = []
    keyword = False
    for kind, text in parameters:
        if kind is inspect.Parameter.KEYWORD_ONLY and not keyword:
            keyword = True
            if not any(k is inspect.Parameter.VAR_POSITIONAL for k, _ in parameters):
                words.append("*")
        words.append(text)
    returned = found.return_annotation
    after = "" if returned in (inspect.Signature.empty, "None") else f" -> {_type(returned)}"
    if inspect.isclass(value):
        after = ""
    line = f"{name}({', '.join(words)}){after}"
    if len(line) > 88:
        line = f"{name}(\n" + "".join(f"    {word},\n" for word in words) + f"){after}"
    return f"```py\n{line}\n```\n"


def _parameter(parameter: inspect.Parameter) -> str:
    text = {
        inspect.Parameter.VAR_POSITIONAL: "*",
        inspect.Parameter.VAR_KEYWORD: "**",
    }.get(parameter.kind, "") + parameter.name
    if parameter.annotation is not parameter.empty:
        text += f": {_type(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        default = parameter.default
        if isinstance(default, enum.Enum):
            shown = str(default)
        elif type(default).__repr__ is object.__repr__ or "factory" in repr(default).lower():
            shown = "..."
        else:
            shown = repr(default)
        text += f" = {shown}" if ":" in text else f"={shown}"
    return text


def _type(annotation: Any) -> str:
    """Return a type as it is written, without what describes an option."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    if found := re.match(r"(?:typing\.)?Annotated\[(.*)", text, re.DOTALL):
        text = _first(found[1])
    return re.sub(r"\b(?:icevirt|typing|collections|pathlib|datetime)\.(?:\w+\.)*", "", text)


def _first(text: str) -> str:
    """Return what stands before the first comma that is in no bracket."""
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter in "[(") - (letter in "])")
        if letter == "," and not depth:
            return text[:at]
    return text


def _members(name: str, kind: type) -> str:
    """Return fields, cases, properties and methods that the class itself or a base of ours has."""
    parts: list[str] = []
    if issubclass(kind, enum.Enum):
        cases = ", ".join(f"`{each.name}`" for each in kind)
        return f"Cases: {cases}.\n"
    if dataclasses.is_dataclass(kind) and (options := _options(kind)):
        parts.append(options)
    for each, value in [] if issubclass(kind, Options) else _public(kind):
        called = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
        text = inspect.getdoc(called) or ""
        if not text:
            continue
        if isinstance(called, property):
            parts.append(f"### {name}.{each} {{ #{name}.{each} }}\n\n{_prose(text)}")
        elif inspect.isroutine(called):
            head = f"### {name}.{each} {{ #{name}.{each} }}\n"
            parts.append(f"{head}\n{_signature(each, called)}\n{_prose(text)}")
    return "\n".join(parts)


def _options(kind: type) -> str:
    """Return a table of the fields of a dataclass, with what their declaration says of them."""
    texts = _field_texts(kind)
    fields = [field for field in dataclasses.fields(kind) if not field.name.startswith("_")]
    rows = [
        f"| `{field.name}` | `{_cell(_type(field.type))}` | {_default(field.default)}"
        f" | {_cell(_linked(texts.get(field.name, '')))} |"
        for field in fields
    ]
    if not rows:
        return ""
    return "\n".join(["| field | type | default | what it is |", "|---|---|---|---|", *rows, ""])


def _default(value: Any) -> str:
    if value is dataclasses.MISSING:
        return ""
    return f"`{_cell(str(value) if isinstance(value, enum.Enum) else repr(value))}`"


def _field_texts(kind: type) -> dict[str, str]:
    """Return the texts of options, and what stands below or behind the fields of a dataclass."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if not base.__module__.startswith("icevirt"):
            continue
        source = textwrap.dedent(inspect.getsource(base))
        (tree,) = ast.parse(source).body
        assert isinstance(tree, ast.ClassDef)
        for at, node in enumerate(tree.body):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                below = tree.body[at + 1] if at + 1 < len(tree.body) else None
                if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                    texts[node.target.id] = str(below.value.value)
                else:
                    texts[node.target.id] = _behind(source.split("\n")[node.end_lineno - 1 :])
    if issubclass(kind, Options):
        texts |= {each.name: each.option.doc for each in declare(kind)}
    return texts


def _behind(lines: list[str]) -> str:
    """Return the comment at the end of a line, and on lines of its own below it."""
    _, _, comment = lines[0].partition("  # ")
    if not comment or comment.startswith(("noqa", "type:")):
        return ""
    below = itertools.takewhile(lambda line: line.startswith("#"), map(str.strip, lines[1:]))
    return " ".join([comment, *(line.removeprefix("# ") for line in below)])


def _public(kind: type) -> Iterator[tuple[str, Any]]:
    seen: set[str] = set()
    for base in kind.__mro__:
        if not base.__module__.startswith("icevirt") or _is_error(base):
            continue
        for each, value in vars(base).items():
            if not each.startswith("_") and each not in seen:
                seen.add(each)
                yield each, value


def _prose(doc: str) -> str:
    """Return a docstring as Markdown."""
    lines = _EXAMPLES.sub(_example, doc).split("\n")
    out: list[str] = []
    section = ""
    is_code = False
    for line in lines:
        is_code ^= line.startswith("```")
        if is_code or line.startswith("```"):
            section = ""
            out.append(line)
            continue
        if found := _SECTION.match(line):
            section = found[1]
            out += ["", f"**{_TITLES.get(section, section)}**", ""]
        elif section and line and not line.startswith(" "):
            section = ""
            out += ["", _linked(line)]
        elif section in ("Args", "Raises", "Attributes"):
            item = re.match(r"^    (\*{0,2}\w+)(?: \(.*?\))?: ?(.*)$", line)
            name = link(item[1]) if item and section == "Raises" else f"`{item[1] if item else ''}`"
            out.append(f"- {name}: {_linked(item[2])}" if item else f"  {_linked(line.strip())}")
        elif section:
            out.append(_linked(line.strip()))
        else:
            out.append(_linked(line))
    return "\n".join(out).rstrip() + "\n"


def _example(found: re.Match[str]) -> str:
    code = textwrap.dedent(found[1]).strip()
    return f"\n**Examples**\n\n```python\n{code}\n```\n"


def _linked(text: str) -> str:
    """Turn names in single backticks into links, where the site has the name."""
    return re.sub(r"(?<!`)`([\w.]+)`(?!`)", lambda found: link(found[1]), text)


def link(name: str) -> str:
    """Return a link to a public name, or the name as code."""
    plain = name.removeprefix("icevirt.").removeprefix("errors.")
    top, _, rest = plain.partition(".")
    if top in icevirt.__all__ or top in _errors():
        value = getattr(icevirt, top, None) or getattr(icevirt.errors, top)
        page = "errors" if _is_error(value) else _page_of(top, _home(value))
        has_entry = not rest or any(
            each == rest for each, _ in _public(value) if _has_doc(value, each)
        )
        if page and has_entry:
            return f"[`{name}`]({page}.md#{plain})"
    return f"`{name}`"


def _has_doc(kind: Any, name: str) -> bool:
    value = inspect.getattr_static(kind, name)
    called = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
    documented = isinstance(called, property) or inspect.isroutine(called)
    return documented and not _is_error(kind) and bool(inspect.getdoc(called))


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|")
