"""The page on permissions is true: each command runs on an S3 that refuses all that is not named.

ICEVIRT_WRITE_PAGE=1 writes the table from the requests that the commands made.
"""

import os
import re
import shlex
from pathlib import Path

import pytest

from builds.support import write_days
from servers.faults import Rules, refused
from servers.s3 import S3
from servers.serving import served

pytestmark = pytest.mark.ci

PAGE = Path(__file__).parents[2] / "docs" / "credentials.md"
REPO, FILES = "s3://bucket/repo", "s3://bucket/files/"
# by the name of a row: what runs for it, in this order; each takes the repository of those before
COMMANDS = {
    "scan": [f"scan {FILES}day1.nc"],
    "plan": [f"plan '{FILES}*.nc'"],
    "build": [f"build '{FILES}*.nc' {REPO}"],
    "append": [f"append '{FILES}*.nc' {REPO}"],
    "update": [f"update {REPO}"],
    "info, log, diff, ops-log, branch list, tag list": [
        f"info {REPO}",
        f"log {REPO}",
        f"diff {REPO} main~1 main",
        f"ops-log {REPO}",
        f"branch list {REPO}",
        f"tag list {REPO}",
    ],
    "status, check": [f"status {REPO}", f"check {REPO}"],
    "source": [f"source {REPO} packed --at time=2001-01-02T06:00,y=0.5,x=0.2"],
    "verify": [f"verify {REPO} --authorize {FILES}"],
    "undo, redo, reset, branch create, tag create": [
        f"undo {REPO}",
        f"redo {REPO}",
        f"branch create {REPO} dev",
        f"tag create {REPO} v1",
        f"reset {REPO} main~1 --branch dev",
    ],
    "exclude": [f"exclude {REPO} {FILES}other.nc"],
    "materialize": [f"materialize {REPO} mask --authorize {FILES}"],
    "maintain": [f"maintain {REPO} --yes"],
    "withdraw": [f"withdraw {FILES}day1.nc {REPO} --authorize {FILES} --allow-changes --yes"],
}
# what a row allows besides: there was nothing of the kind in the repository of this test
BESIDES = {
    "append": {("delete", "icevirt/")},
    "update": {("delete", "icevirt/")},
    "maintain": {("delete", "repo")},
}
WHAT = {"GET": "read", "HEAD": "read", "PUT": "write", "POST": "write", "DELETE": "delete"}


class Guarded:
    """An S3 that notes who is asked for what, and refuses what is not allowed."""

    def __init__(self, cloud):
        self.cloud, self.used, self.allowed = cloud, set(), None

    def answer(self, request):
        use = _use(request)
        self.used.add(use)
        if self.allowed is not None and not _covered(use, self.allowed):
            return refused(403, "AccessDenied").answer
        return self.cloud.answer(request)


def _use(request):
    """Return what a request needs: the action, and the place, as the page has it."""
    name = request.path.removeprefix("/bucket").removeprefix("/")
    if "list-type" in request.query:
        return "list", "files" if request.query.get("prefix", "").startswith("files") else "repo"
    if request.method == "POST" and "delete" in request.query:
        keys = re.findall(r"<Key>(.*?)</Key>", request.body.decode())
        places = {_place(key) for key in keys}
        return "delete", places.pop() if len(places) == 1 else "repo"
    return WHAT[request.method], _place(name)


def _place(key):
    first = key.split("/")
    if first[0] == "files":
        return "files"
    return f"{first[1]}/" if first[1] in ("icevirt", "overwritten") else "repo"


def _covered(use, allowed):
    action, place = use
    wider = place if place == "files" else "repo"
    return (action, place) in allowed or (action, wider) in allowed


def rows():
    found = re.findall(r"^\| `(.*?)` \| (.*?) \| (.*?) \|$", PAGE.read_text(), re.MULTILINE)
    return {name.replace("`", ""): (repo, files) for name, repo, files in found}


def allowed(repo, files):
    """Return what a row allows."""
    named = set()
    for action in ("read", "list", "write", "delete"):
        if match := re.search(rf"{action}((?: below `[a-z/]+`(?: and `[a-z/]+`)?)?)", repo):
            below = re.findall(r"`([a-z]+/)`", match[1])
            named |= {(action, place) for place in below or ["repo"]}
        if action in files:
            named.add((action, "files"))
    return named


def written(used):
    """Return the cells of a row, from what was used."""
    repo, files = [], []
    for action in ("read", "list", "write", "delete"):
        places = sorted(place for act, place in used if act == action and place != "files")
        if (action, "files") in used:
            files.append(action)
        if "repo" in places:
            repo.append(action)
        elif places:
            repo.append(f"{action} below " + " and ".join(f"`{place}`" for place in places))
    return ", ".join(repo) or "nothing", ", ".join(files) or "nothing"


def test_each_command_needs_what_its_row_says(tmp_path, monkeypatch, run, in_process):
    cloud = S3()
    guarded = Guarded(cloud)
    with served(guarded.answer, Rules()) as endpoint:
        for name, value in {
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ALLOW_HTTP": "true",
        }.items():
            monkeypatch.setenv(name, value)
        days = write_days(tmp_path / "archive", 5)
        found, known = {}, {} if os.environ.get("ICEVIRT_WRITE_PAGE") else rows()
        arrive(cloud, days[:3])
        for row, lines in COMMANDS.items():
            guarded.allowed = None
            if row == "append":
                arrive(cloud, days[3:4])
            if row == "update":
                arrive(cloud, days[4:])
            guarded.used = set()
            guarded.allowed = allowed(*known[row]) if known else None
            for line in lines:
                status, out, err = run(*shlex.split(line))
                assert status in (0, None), f"{line}: {out}{err} {guarded.used}"
            found[row] = written(guarded.used | BESIDES.get(row, set()))
    if known:
        assert {row: known[row] for row in COMMANDS} == found
    else:
        lines = [f"| `{row.replace(', ', '`, `')}` | {a} | {b} |" for row, (a, b) in found.items()]
        page = PAGE.read_text()
        page = re.sub(
            r"(\|---\|---\|---\|\n)(\|.*\n)*", r"\1" + "\n".join(lines) + "\n", page, count=1
        )
        PAGE.write_text(page)


def arrive(cloud, files):

    import obstore
    from obstore.store import from_url

    store = from_url(FILES)
    for path in map(Path, files):
        obstore.put(store, path.name, path.read_bytes())
