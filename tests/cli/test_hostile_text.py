"""Text of repositories and files is shown by every command and picture, and obeyed by none."""

import ast
import html.parser
import json
import pickle
import re
import unicodedata
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

import icevirt
from icevirt import icechunk as names_of_icechunk
from icevirt.api.history import moves
from icevirt.cli.main import _COMMANDS
from icevirt.errors import IcevirtError

MARKS = "\x1b[2J\x9b31m\u202etxt\u2028\u200b\x7f"
TAG = "<script>x</script>"
HOSTILE = f"{TAG}{MARKS}"
SHOWN = r"\x1b[2J\x9b31m\u202etxt\u2028\u200b\x7f"
UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}

SHOWS_NOTHING = {"demo", "spark-script", "explain"}
"""Commands without a repository or file of others."""


def write(path, first, last=b""):
    with h5py.File(path, "w") as file:
        file["time"] = np.arange(2.0) + first
        file["time"].attrs["units"] = "days since 2000-01-01"
        file["time"].make_scale("time")
        made = file.create_dataset(f"v{MARKS}", data=np.arange(8.0).reshape(2, 4), chunks=(1, 4))
        made.dims[0].attach_scale(file["time"])
        made.attrs[f"a{HOSTILE}"] = made.attrs["units"] = HOSTILE
        file.attrs["title"] = HOSTILE
    if last:
        path.write_bytes(last)


@pytest.fixture
def archive(tmp_path):
    """Return a folder whose name, files, variables and attributes are hostile."""
    folder = tmp_path / f"archive{MARKS}"
    folder.mkdir()
    for number in range(3):
        write(folder / f"{number}{MARKS}.nc", 2 * number)
    return folder


@pytest.fixture
def repository(tmp_path, archive, monkeypatch):
    """Return a repository of it, with names, messages and metadata that are hostile, too."""
    monkeypatch.setenv("ICEVIRT_EXECUTOR", "in-process")
    path = tmp_path / "repo"
    icevirt.build(archive, path, concat_dim="time", executor="in-process")
    write(archive / f"3{MARKS}.nc", 6)
    write(archive / f"bad{MARKS}.nc", 8, b"\x89HDF\r\n\x1a\nno")
    repo = icevirt.Repository.open(path)
    session = repo.writable_session("main")
    zarr.open_group(session.store).attrs[HOSTILE] = HOSTILE
    session.commit(f"{HOSTILE}\n{HOSTILE}", metadata={HOSTILE: HOSTILE})
    tip = repo.lookup_branch("main")
    repo.create_branch(f"b{HOSTILE}", tip)
    repo.create_branch("other", tip)
    repo.create_tag(f"t{HOSTILE}", tip)
    repo.create_tag("v1", tip)
    repo.set_metadata({HOSTILE: HOSTILE})
    return path


def lines(archive, repo, folder):
    """Return calls of every command, in an order in which they can follow each other."""
    some, other = archive / f"0{MARKS}.nc", archive / f"3{MARKS}.nc"
    prefix = f"{archive.as_uri()}/"
    variable, branch, bad = f"v{MARKS}", f"b{HOSTILE}", f"none{HOSTILE}"
    return [
        ["scan", some],
        ["scan", archive, "--catalog", folder / "catalog"],
        ["catalog", folder / "catalog"],
        ["plan", archive, "--concat-dim", "time", "--max-bad-files", "1"],
        ["plan", archive],
        ["plan", archive / bad],
        ["build", archive, folder / "second", "--concat-dim", "time", "--max-bad-files", "1"],
        ["build", archive, folder / "third"],
        ["build", archive, folder / "fourth", "--concat-dim", bad, "--max-bad-files", "1"],
        ["info", repo],
        ["info", repo, "--branch", branch],
        ["info", repo, "--branch", bad],
        ["status", repo],
        ["check", repo],
        ["verify", repo, "--authorize", prefix],
        ["verify", repo],
        ["source", repo, variable, "--at", "time=2000-01-01"],
        ["source", repo, bad, "--at", f"{bad}=1"],
        ["log", repo],
        ["log", repo, "--branch", bad],
        ["diff", repo, "main~1", "main"],
        ["diff", repo, bad, "main"],
        ["ops-log", repo],
        ["branch", "list", repo],
        ["branch", "create", repo, f"{HOSTILE}2"],
        ["branch", "rename", repo, f"{HOSTILE}2", f"{HOSTILE}3"],
        ["branch", "delete", repo, f"{HOSTILE}3"],
        ["branch", "delete", repo, bad],
        ["tag", "list", repo],
        ["tag", "create", repo, f"{HOSTILE}2"],
        ["tag", "create", repo, f"{HOSTILE}2"],
        ["tag", "delete", repo, f"{HOSTILE}2"],
        ["undo", repo, "--branch", branch],
        ["redo", repo, "--branch", branch],
        ["reset", repo, "main~1", "--branch", branch],
        ["reset", repo, bad],
        ["exclude", repo, other],
        ["exclude", repo],
        ["exclude", repo, other, "--undo"],
        ["append", other, repo],
        ["append", archive, repo],
        ["update", repo, "--dry-run"],
        ["update", repo],
        ["export", repo, folder / "refs.json"],
        ["export", repo, folder / bad / "refs.json"],
        ["materialize", repo, variable, "--authorize", prefix],
        ["materialize", repo, bad],
        ["relocate", repo, prefix, f"{prefix}{bad}/"],
        ["withdraw", some, repo, "--authorize", prefix, "--yes"],
        ["withdraw", archive / bad, repo],
        ["maintain", repo],
        ["maintain", repo, "--yes"],
        ["upgrade", repo],
        ["upgrade", folder / bad],
        [bad],
    ]


def unsafe(text, *, colors=False):
    """Return the letters of a text that a terminal or reader would obey, line ends aside."""
    if colors:
        text = re.sub("\x1b\\[[0-9;]*m", "", text)
    return {letter for letter in text if unicodedata.category(letter) in UNSEEN} - {"\n"}


@pytest.mark.ci
def test_every_command_shows_hostile_text_as_text(archive, repository, tmp_path, run):
    calls = lines(archive, repository, tmp_path)
    assert {call[0] for call in calls} >= _COMMANDS.keys() - SHOWS_NOTHING
    shown = 0
    for call in calls:
        for output in ([], ["-o", "json"]):
            _, out, err = run(*call, *output)
            assert not unsafe(out + err), (call, ascii(out + err))
            assert "Traceback" not in err, (call, err)
            shown += SHOWN.split("t", maxsplit=1)[0] in out + err
            if output and out:
                json.loads(out)
    assert shown > len(calls) // 2


def test_json_means_the_same(repository, run):
    _, out, _ = run("log", repository, "-o", "json")
    assert f"{HOSTILE}\n{HOSTILE}" in {each["message"] for each in json.loads(out)["commits"]}


class Tags(html.parser.HTMLParser):
    """The tags of a page."""

    def __init__(self, page):
        super().__init__()
        self.found = set()
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.add(tag)
        assert not [name for name, _ in attrs if name.startswith("on")]


def pictures(value):
    """Yield what is drawn of a value: text first."""
    yield from (repr(value), str(value))
    for name in ("_repr_html_", "_repr_svg_"):
        if hasattr(value, name):
            drawn = getattr(value, name)()
            assert "script" not in Tags(drawn).found
            yield drawn


def drawn_classes():
    """Return the names of all classes of icevirt that draw themselves for notebooks."""
    for path in Path(icevirt.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                own = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
                if own & {"_repr_html_", "_repr_svg_"}:
                    yield node.name


@pytest.mark.ci
def test_every_picture_shows_hostile_text_as_text(archive, repository, tmp_path):
    prefix = f"{tmp_path.as_uri()}/"
    repo = icevirt.Repository.open(repository, authorize_virtual_chunk_access=[prefix])
    theirs = names_of_icechunk.Repository.open(
        names_of_icechunk.local_filesystem_storage(str(repository))
    )
    branch = f"b{HOSTILE}"
    session, their_session = repo.writable_session(branch), theirs.writable_session(branch)
    for each in (session, their_session):
        zarr.open_group(each.store).create_group("g")
    options = {"max_bad_files": 1}
    scanned = icevirt.scan_files(archive, tmp_path / "catalog", scan_options=options)
    plan = scanned.combine(concat_dim="time")
    values = [
        scanned,
        plan,
        plan.write(tmp_path / "second"),
        scanned.bad_files,
        icevirt.catalog_view(tmp_path / "catalog"),
        icevirt.undo(repository, branch=branch),
        moves.branches(repository),
        moves.tags(repository),
        icevirt.source(repository, f"v{MARKS}", {"time": "2000-01-01"}),
        icevirt.scan_file(archive / f"0{MARKS}.nc"),
        icevirt.info(repository),
        icevirt.log(repository),
        icevirt.diff(repository, "main~1"),
        icevirt.ops_log(repository),
        icevirt.status(repository),
        icevirt.check(repository),
        icevirt.verify(repository, authorize_virtual_chunk_access=[prefix]),
        icevirt.append(archive, repository, scan_options=options),
        repo,
        session,
        session.store,
        session.status(),
        repo.ancestry_graph(plain=True),
        theirs,
        theirs.config,
        theirs.storage,
        their_session,
        their_session.store,
        their_session.status(),
        next(iter(theirs.ancestry(branch=branch))),
        theirs.diff(from_tag="v1", to_branch="main"),
    ]
    assert {*drawn_classes()} <= {each.__name__ for value in values for each in type(value).__mro__}
    drawn = [(value, picture) for value in values for picture in pictures(value)]
    for value, picture in drawn:
        assert not unsafe(picture), (type(value), ascii(picture))
    assert (
        sum(SHOWN.split("t", maxsplit=1)[0] in picture for _, picture in drawn) > len(values) // 2
    )
    in_colors = str(repo.ancestry_graph())
    assert not unsafe(in_colors, colors=True)


def test_every_page_shows_hostile_text_as_text(archive, repository, tmp_path):
    scanned = icevirt.scan_files(archive, tmp_path / "catalog", scan_options={"max_bad_files": 1})
    plan = scanned.combine(concat_dim="time")
    for value in (repository, plan, plan.write(tmp_path / "second")):
        icevirt.to_html(value, tmp_path / "page.html")
        page = (tmp_path / "page.html").read_text()
        assert "script" not in Tags(page).found
        assert not unsafe(page), ascii(page)
        assert SHOWN.split("t", maxsplit=1)[0] in page


def test_an_error_shows_hostile_text_as_text_wherever_it_goes():
    for error in (
        IcevirtError(HOSTILE, do=HOSTILE, file=HOSTILE),
        names_of_icechunk.IcechunkError(HOSTILE),
        names_of_icechunk.ConflictError(message=HOSTILE),
    ):
        for each in (error, pickle.loads(pickle.dumps(error))):
            assert not unsafe(str(each) + repr(each)), ascii(str(each))
