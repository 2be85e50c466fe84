"""Print the figures of the house: its size, its names, and what it imports and repeats.

    python .ci/house.py

Everything is counted from the source, but for the modules that a build and a read execute: those
run in a process each.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = (ROOT / "icevirt", ROOT / "scanners" / "icevirt_scanners")
ROOMS = ("icechunk", "legacy", "virtualizarr", "dask.py", "xarray.py", "interop")
"""Rooms and doors beside the core: names of folders and modules."""

_NO_PARTICIPLES = {"need", "embed", "speed", "feed", "seed", "exceed", "proceed", "indeed", "red"}
_IRREGULAR = {
    *("begun", "bound", "brought", "built", "chosen", "dealt", "done", "drawn", "felt", "found"),
    *("given", "gone", "grown", "held", "hidden", "kept", "known", "laid", "led", "left", "lent"),
    *("lost", "made", "meant", "met", "paid", "said", "seen", "sent", "shown", "spelt", "spent"),
    *("taken", "taught", "thought", "told", "torn", "withdrawn", "written"),
}

_VAGUE = {"found", "made", "held", "there"}

BUILD = """
    import os
    import h5py
    for number in range(3):
        with h5py.File(f"{folder}/{number}.nc", "w") as file:
            time = file.create_dataset("time", data=[float(number)], maxshape=(None,))
            time.make_scale("time")
            values = file.create_dataset("v", data=[[1.0, 2.0]], maxshape=(None, 2), chunks=(1, 2))
            values.dims[0].attach_scale(time)
    os.environ["XDG_STATE_HOME"] = f"{folder}/state"
    import icevirt
    icevirt.build(folder, f"{folder}/repo", concat_dim="time", executor="in-process")
"""
READ = """
    import xarray as xr
    found = xr.open_dataset(
        f"{folder}/repo",
        engine="icevirt",
        decode_times=False,
        authorize_virtual_chunk_access=[folder],
    )
    assert found["v"][0, 0].values == 1.0
"""
BEGIN = """
    import sys
    executed = set()
    def note(frame, event, _, /):
        code = frame.f_code
        if event == "call" and code.co_flags & 1:  # of a function, not of a module or class
            executed.add(code.co_filename)
    sys.setprofile(note)
"""
END = """
    sys.setprofile(None)
    print(sum("/icevirt/" in path or "/icevirt_scanners/" in path for path in executed))
"""


@cache
def modules() -> dict[Path, ast.Module]:
    """Return the tree of each module of the product."""
    paths = sorted(path for package in PACKAGES for path in package.rglob("*.py"))
    return {path: ast.parse(path.read_text()) for path in paths}


def lines_of(path: Path) -> int:
    """Return the lines of a module."""
    return path.read_text().count("\n")


def is_core(path: Path) -> bool:
    """Say whether a module belongs to no room of its own."""
    return not set(ROOMS) & set(path.relative_to(ROOT).parts[1:])


def functions() -> Iterator[tuple[Path, str]]:
    """Yield modules and names of their functions and methods, without properties and Python's."""
    for path, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not (
                is_value(node) or node.name.startswith("__")
            ):
                yield path, node.name


def share_of_participles() -> float:
    """Return the percentage of functions whose name begins with a participle."""
    names = [name for _, name in functions()]
    return 100 * sum(map(is_participle, names)) / len(names)


def is_vague(name: str) -> bool:
    """Say whether a name is too vague for a function."""
    return name.strip("_") in _VAGUE


def is_value(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Say whether a function is a property, so that its name is a value's."""
    return any("property" in ast.unparse(each) for each in node.decorator_list)


def is_participle(name: str) -> bool:
    """Say whether the first word of a name is a participle."""
    first = name.strip("_").partition("_")[0]
    is_regular = first.endswith("ed") and first not in _NO_PARTICIPLES and len(first) > 3
    return is_regular or first in _IRREGULAR


def public_classes() -> Counter[str]:
    """Return how often each public name of a class stands at the top of modules of the core."""
    return Counter(
        node.name
        for path, tree in modules().items()
        if "icechunk" not in path.parts
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )


def longest_chain() -> list[str]:
    """Return the longest chain of modules that import one another, imports in functions too."""
    names = {dotted(path): path for path in modules() if path.name != "__init__.py"}
    graph = {name: imports_of(modules()[path], names) - {name} for name, path in names.items()}
    known: dict[str, list[str]] = {}

    def chain(name: str) -> list[str]:
        if name not in known:
            known[name] = [name, *max((chain(each) for each in graph[name]), key=len, default=[])]
        return known[name]

    sys.setrecursionlimit(10_000)
    return max(map(chain, graph), key=len)


def dotted(path: Path) -> str:
    """Return the name under which a module is imported."""
    root = next(each.parent for each in PACKAGES if path.is_relative_to(each))
    return ".".join(path.relative_to(root).with_suffix("").parts)


def imports_of(tree: ast.Module, names: dict[str, Path]) -> set[str]:
    """Return the modules that a module imports, wherever the import stands."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
        elif isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
    return found & names.keys()


def declared_twice() -> list[str]:
    """Return parameters that a public function and the command of its name declare by themselves.

    A parameter of a function that returns the result of a command is a declaration; options that
    commands are given from the objects of a call are none.
    """
    in_python = {
        node.name: {each.arg for each in (*node.args.args, *node.args.kwonlyargs)}
        for path, tree in modules().items()
        if path.relative_to(ROOT).parts[:2] == ("icevirt", "api")
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    }
    return [
        f"{node.name}.{each.arg}"
        for path, tree in modules().items()
        if path.relative_to(ROOT).parts[:2] == ("icevirt", "cli")
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and ast.unparse(node.returns or node) == "CommandResult"
        for each in (*node.args.args, *node.args.kwonlyargs)
        if each.arg in in_python.get(node.name, ()) and each.annotation is not None
    ]


def ways_to_a_snapshot() -> list[str]:
    """Return the modules outside of formats of others in which a snapshot is put."""
    return [
        str(path.relative_to(ROOT))
        for path in modules()
        if "commits" in path.parts and re.search(r"\.put_snapshot\(", path.read_text())
    ]


def executed() -> tuple[str, str]:
    """Return how many modules of ours a build of three files executes, and a read of a value."""
    begin, build, read, end = map(textwrap.dedent, (BEGIN, BUILD, READ, END))
    with tempfile.TemporaryDirectory() as folder:
        there = f"folder = {folder!r}\n"
        return printed_by(f"{there}{begin}{build}{end}"), printed_by(f"{there}{begin}{read}{end}")


def printed_by(program: str) -> str:
    """Return what a program prints, in a process of its own."""
    ran = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    return ran.stdout.strip()


def main() -> None:
    """Print a row for each figure."""
    participles = [name for _, name in functions() if is_participle(name)]
    twice = [name for name, count in public_classes().items() if count > 1]
    sizes = {path: lines_of(path) for path in modules()}
    built, opened = executed()
    chain = longest_chain()
    rows = {
        "lines of product": sum(sizes.values()),
        "lines of the core": sum(size for path, size in sizes.items() if is_core(path)),
        "modules": len(sizes),
        "modules executed by a build of three files": built,
        "modules executed by a read of one value through xarray": opened,
        "longest chain of imports": len(chain),
        "functions that begin with a participle": f"{share_of_participles():.1f} %",
        "parameters declared twice": len(declared_twice()),
        "public class names that exist twice": len(twice),
        "ways from changes to a snapshot": len(ways_to_a_snapshot()),
    }
    for name, value in rows.items():
        sys.stdout.write(f"{name:56} {value:>10}\n")
    if "--names" in sys.argv:
        sys.stdout.write(f"\nchain: {' > '.join(chain)}\n\ntwice: {', '.join(sorted(twice))}\n")
        counted = Counter(participles).most_common(60)
        sys.stdout.write(f"\nparticiples: {counted}\n\ndeclared twice: {declared_twice()}\n")


if __name__ == "__main__":
    main()
