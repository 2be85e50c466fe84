"""The layout of the package holds: rows, folders, names. ARCHITECTURE.md describes it."""

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent

# from the bottom; a module sees the rows below its own and nothing else of its own row
LAYERS = (
    (
        "redaction",
        "escaping",
        "import_path",
        "remedy_notation",
        "amounts",
        "threads",
        "installation",
    ),
    ("errors", "ids", "version"),
    ("model",),
    ("archive", "connect", "versioning"),
    ("planning",),
    ("wire", "storage", "objects"),
    ("repo", "catalog"),
    ("access", "scan", "legacy"),
    ("tasks",),
    ("execution", "display", "testing"),
    ("api", "dask", "xarray"),
    ("spark", "icechunk", "virtualizarr"),
    ("cli",),
    ("__main__",),
)
ROW = {name: row for row, names in enumerate(LAYERS) for name in names}
FACADES = ("icevirt", "icevirt/icechunk", "icevirt/spark", "icevirt/virtualizarr")
FOLDER = 20  # modules of a folder, beside its __init__
SCANNERS_SEE = ("scan", "archive", "model", "errors", "remedy_notation")
HEAVY = ("pyspark", "h5py", "xarray", "zarr", "pandas", "pyarrow", "numpy")


@dataclass
class Seen:
    """What the tests look at in a file, which is read once: to keep its tree would take much."""

    imports: list[ast.Import | ast.ImportFrom] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)  # at the top
    generic: list[str] = field(default_factory=list)
    subscripted: list[tuple[int, str]] = field(default_factory=list)  # lines of Kind[str]()


@cache
def seen(path: Path) -> Seen:
    tree, found = ast.parse(path.read_text()), Seen()
    found.classes += [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    for node in ast.walk(tree):
        match node:
            case ast.Import() | ast.ImportFrom():
                found.imports.append(node)
            case ast.ClassDef(type_params=[_, *_]):
                found.generic.append(node.name)
            case ast.Call(func=ast.Subscript(value=ast.Name(id=name))):
                found.subscripted.append((node.lineno, name))
    return found


@pytest.fixture(scope="module", autouse=True)
def forget() -> Iterator[None]:
    """Keep no tree for later tests, whose garbage collections would walk over all of them."""
    yield
    seen.cache_clear()
    house().modules.cache_clear()


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and dotted name of every import, wherever it stands; "." marks relative."""
    for node in seen(path).imports:
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(level=0, module="icevirt", names=names):
                yield from ((node.lineno, f"icevirt.{alias.name}") for alias in names)
            case ast.ImportFrom(level=0, module=str(module)):
                yield node.lineno, module
            case ast.ImportFrom():
                yield node.lineno, "."


def complaints(root: Path) -> list[str]:
    """Return what is wrong with the imports of the package below ``root``."""
    found = []
    for path in sorted((root / "icevirt").rglob("*.py")):
        inside = path.relative_to(root / "icevirt")
        if inside == Path("__init__.py"):  # the facade
            continue
        layer = inside.parts[0].removesuffix(".py")
        if layer not in ROW:
            found.append(f"{inside}: {layer} stands in no layer")
            continue
        found += [f"{inside}:{line} imports {name}" for line, name in wrong(path, layer)]
    for path in sorted((root / "scanners").rglob("*.py")):
        found += [f"{path.name}:{line} imports {name}" for line, name in unseen(path)]
    return found


def wrong(path: Path, layer: str) -> Iterator[tuple[int, str]]:
    """Yield the imports of a module of icevirt that its layer does not allow."""
    for line, name in imports(path):
        first, _, rest = name.partition(".")
        target = rest.partition(".")[0]
        if layer == "cli" and name == "icevirt":  # the first user of the public interface
            continue
        if (
            name == "."
            or first == "icevirt_scanners"
            or (first == "icevirt" and target != layer and ROW.get(target, 99) >= ROW[layer])
        ):
            yield line, name


def unseen(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the imports of a scanner that reach beyond the scanner contract."""
    for line, name in imports(path):
        first, _, rest = name.partition(".")
        if name == "." or (first == "icevirt" and rest.partition(".")[0] not in SCANNERS_SEE):
            yield line, name


def test_every_import_points_to_a_lower_layer():
    """The rule of ARCHITECTURE.md, on the package itself."""
    assert complaints(ROOT) == []


BAD = {
    "a higher layer": ("icevirt/model/x.py", "import icevirt.wire.y"),
    "a higher layer, inside a function": (
        "icevirt/model/x.py",
        "def f():\n    from icevirt.wire import y",
    ),
    "a higher layer, for typing only": (
        "icevirt/model/x.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from icevirt.repo.y import Z",
    ),
    "a higher layer, from the package": ("icevirt/model/x.py", "from icevirt import wire"),
    "a neighbour in the same row": ("icevirt/wire/x.py", "from icevirt.storage.y import Z"),
    "a neighbouring module": ("icevirt/errors.py", "from icevirt.ids import Id"),
    "the facade": ("icevirt/repo/x.py", "import icevirt"),
    "a name of the facade": ("icevirt/repo/x.py", "from icevirt import build"),
    "a relative import": ("icevirt/model/x.py", "from . import y"),
    "the other package": ("icevirt/scan/x.py", "import icevirt_scanners.hdf5"),
    "a package in no layer": ("icevirt/utils/x.py", "import os"),
    "a scanner behind its contract": (
        "scanners/icevirt_scanners/x.py",
        "from icevirt.repo.y import Z",
    ),
}


@pytest.mark.parametrize(("path", "source"), BAD.values(), ids=BAD.keys())
def test_the_rule_fails_on(path, source, tmp_path):
    """A checker that never complains would pass too."""
    module = tmp_path / path
    module.parent.mkdir(parents=True)
    module.write_text(source)
    assert len(complaints(tmp_path)) == 1


def test_the_rule_passes_on_imports_from_below(tmp_path):
    """Rows may be skipped, a package's own modules and foreign packages are free."""
    module = tmp_path / "icevirt/repo/x.py"
    module.parent.mkdir(parents=True)
    module.write_text(
        "import numpy\nfrom icevirt.errors import A\nimport icevirt.wire.b\nfrom icevirt.repo import c"
    )
    assert complaints(tmp_path) == []


def test_each_decision_has_a_module():
    """The table of ARCHITECTURE.md, "Who decides", names modules that there are."""
    table = (
        (ROOT / "ARCHITECTURE.md")
        .read_text()
        .partition("## Who decides\n")[2]
        .partition("\n## ")[0]
    )
    named = re.findall(r"`([\w/]+\.py)`", table)
    assert len(named) >= 10
    assert [name for name in named if not (ROOT / "icevirt" / name).exists()] == []


def of_a_room(root: Path, room: str) -> list[str]:
    """Return the modules outside of a room of icevirt that import it, or name it in a text."""
    name = f"icevirt.{room}"
    return [
        str(path.relative_to(root))
        for top in ("icevirt", "scanners")
        for path in sorted((root / top).rglob("*.py"))
        if not path.is_relative_to(root / "icevirt" / room)
        and (name in path.read_text() or any(each == name for _, each in imports(path)))
    ]


@pytest.mark.ci
def test_nothing_imports_the_formats_before_v1():
    """An entry point names them: the core is read, tested and changed without them."""
    assert of_a_room(ROOT, "legacy") == []


@pytest.mark.parametrize(
    "source",
    [
        "from icevirt.legacy.finder import RefPaths",
        "def f():\n    import icevirt.legacy.finder",
        "from icevirt import legacy",
        "from importlib import import_module\nimport_module('icevirt.legacy.finder')",
    ],
)
def test_the_rule_of_rooms_fails_on(source, tmp_path):
    (tmp_path / "icevirt/legacy").mkdir(parents=True)
    (tmp_path / "icevirt/legacy/inside.py").write_text("from icevirt.legacy import refs")
    (tmp_path / "icevirt/api.py").write_text(source)
    assert of_a_room(tmp_path, "legacy") == ["icevirt/api.py"]


def module_graph() -> dict[str, set[str]]:
    """Return which modules each module of the product imports, the facade left out."""
    files = {
        ".".join(path.relative_to(top).with_suffix("").parts): path
        for top in (ROOT, ROOT / "scanners")
        for path in top.glob("icevirt*/**/*.py")
        if path.name != "__init__.py"
    }
    graph = {}
    for name, path in files.items():
        found = set()
        for node in seen(path).imports:
            match node:
                case ast.Import(names=names):
                    found |= {alias.name for alias in names}
                case ast.ImportFrom(module=str(module), names=names):
                    found |= {module, *(f"{module}.{alias.name}" for alias in names)}
        graph[name] = found & files.keys()
    return graph


def test_no_module_imports_itself_through_others():
    """Not even by imports in functions: a reader can begin at the bottom."""
    TopologicalSorter(module_graph()).prepare()


def packages() -> list[Path]:
    """Return the folders of all packages of the product."""
    tops = (ROOT / "icevirt", ROOT / "scanners" / "icevirt_scanners")
    return sorted(found.parent for top in tops for found in top.rglob("__init__.py"))


def too_full(folder: Path) -> bool:
    """Return whether a folder has more modules than a person keeps in mind."""
    return len([found for found in folder.glob("*.py") if found.name != "__init__.py"]) > FOLDER


def test_folders_are_small():
    """A folder holds one concept."""
    assert [str(folder.relative_to(ROOT)) for folder in packages() if too_full(folder)] == []


def test_the_rule_of_folders_fails_on_a_full_one(tmp_path):
    """A checker that never complains would pass too."""
    for number in range(FOLDER + 1):
        (tmp_path / f"m{number}.py").touch()
    assert too_full(tmp_path)


def test_every_folder_says_what_belongs_there():
    """The docstring of its __init__, which holds nothing else (what users import from aside)."""
    for folder in packages():
        tree = ast.parse((folder / "__init__.py").read_text())
        said = ast.get_docstring(tree)
        assert said, f"{folder} says nothing"
        is_facade = folder.relative_to(ROOT).as_posix() in FACADES
        assert is_facade or len(tree.body) == 1, f"{folder} holds code"


def test_no_two_classes_have_one_name():
    """A name means one thing, in all of the product.

    `icevirt.icechunk` has icechunk's names, for programs that import it in icechunk's place: the
    classes there are those of the same name elsewhere, with icechunk's signatures.
    """
    homes: dict[str, list[str]] = {}
    for folder in packages():
        if folder.is_relative_to(ROOT / "icevirt" / "icechunk"):
            continue
        for path in folder.glob("*.py"):
            for name in seen(path).classes:
                homes.setdefault(name, []).append(str(path.relative_to(ROOT)))
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def house() -> ModuleType:
    """Return the program that counts the figures of the house."""
    sys.path.insert(0, str(ROOT / ".ci"))
    try:
        return importlib.import_module("house")
    finally:
        sys.path.remove(str(ROOT / ".ci"))


@pytest.mark.ci
def test_functions_are_named_by_verbs():
    """A name like ``recorded`` is a value's; ``python .ci/house.py --names`` lists the others."""
    assert house().share_of_participles() <= 2


def test_no_name_of_a_function_is_vague():
    vague = {
        f"{path.relative_to(ROOT)}: {name}"
        for path, name in house().functions()
        if house().is_vague(name)
    }
    assert not vague


@pytest.mark.parametrize(
    ("name", "is_one"),
    [("_built", True), ("recorded_at", True), ("held", True), ("build", False), ("feed", False)],
)
def test_a_participle_is_seen_by_its_first_word(name, is_one):
    assert house().is_participle(name) is is_one


def test_no_generic_dataclass_is_made_through_a_subscript():
    """Python 3.12.1 cannot make ``Kind[str]()`` of a class that is frozen and slotted."""
    files = [path for folder in packages() for path in folder.glob("*.py")]
    generic = {name for path in files for name in seen(path).generic}
    assert generic
    made = [
        f"{path}:{line}"
        for path in files
        for line, name in seen(path).subscripted
        if name in generic
    ]
    assert not made


def test_architecture_md_names_files_that_are_there():
    """Each path in the walks and the map leads to a module or folder."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    said = set(re.findall(r"`((?:[a-z_0-9]+/)+(?:[a-z_0-9]+\.py)?)`", text))
    assert len(said) > 20
    lost = [
        path
        for path in sorted(said)
        if not any((ROOT / top / path).exists() for top in ("icevirt", "."))
    ]
    assert lost == []


def test_importing_icevirt_imports_nothing_heavy():
    """Completion, --help and error paths stay fast."""
    code = "import sys, icevirt; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [name for name in HEAVY if name in ran.stdout.split()] == []


def test_the_public_names_are_all_there():
    """Each name of the table stands in it once, resolves, and is what its module calls it."""
    import icevirt

    listed = [name for names in icevirt._EXPORTS.values() for name in names.split()]
    assert sorted(icevirt.__all__) == sorted([*listed, "errors", "__version__"])
    assert len(set(listed)) == len(listed)
    assert dir(icevirt) == sorted(icevirt.__all__)
    everything = {}
    exec("from icevirt import *", everything)
    assert [name for name in icevirt.__all__ if name not in everything] == []


def test_the_stub_says_what_the_table_says():
    """If not: ``python docs/make_stub.py``. Type checkers and editors read the stub alone."""
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        import make_stub
    finally:
        sys.path.remove(str(ROOT / "docs"))
    assert make_stub.STUB.read_text() == make_stub.stub()
    imported = [
        alias.name
        for node in ast.walk(ast.parse(make_stub.stub()))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    import icevirt

    assert sorted(imported) == sorted(icevirt.__all__)


@pytest.mark.parametrize(
    "path",
    sorted([*ROOT.glob("bench/*.py"), *ROOT.glob("examples/*.py")], key=str),
    ids=lambda path: path.name,
)
def test_programs_beside_the_package_import_names_that_exist(path):
    for node in seen(path).imports:
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("icevirt"):
            module = importlib.import_module(str(node.module))
            for alias in node.names:
                if not hasattr(module, alias.name):
                    importlib.import_module(f"{node.module}.{alias.name}")


def test_no_chain_of_imports_is_long():
    """Imports in functions and for typing count: who reads a module reads what is below it."""
    chain = house().longest_chain()
    assert len(chain) <= 23, " > ".join(chain)
