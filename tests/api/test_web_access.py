"""`icevirt verify --as-browser` says what servers lack for a page, and nothing where they lack none."""

import json
import math
from dataclasses import replace

import pytest

import icevirt
from builds.support import write_days
from icevirt.api.upkeep.web_access import verify_as_browser
from icevirt.errors import InvalidInputError, UnauthorizedError
from icevirt.objects.http.browser import PageRequest, look_as_browser
from servers.faults import Fault, redirected, refused, without

ORIGIN = "access-control-allow-origin"
SHARED = {
    ORIGIN: "*",
    "access-control-expose-headers": "Content-Range, ETag",
    "access-control-allow-headers": "Range, If-Match, If-None-Match",
}
WHOLE = Fault(change=lambda answer: replace(answer, status=200))
PAGE = "http://page.example"


@pytest.fixture
def web(tmp_path, http_server, in_process):
    """A web server with a repository of files, and what puts a repository there."""
    del in_process
    write_days(tmp_path / "archive", 2)
    for path in (tmp_path / "archive").iterdir():
        http_server.files.put(f"archive/{path.name}", path.read_bytes())
    at = {f"{tmp_path}/archive/": f"{http_server.url}/archive/"}
    options = {"commit_options": {"publish_as": at}}
    icevirt.build(tmp_path / "archive", tmp_path / "repo", concat_dim="time", **options)
    show(http_server, tmp_path / "repo")
    http_server.files.shared = dict(SHARED)
    return http_server


def show(server, repo):
    for path in repo.rglob("*"):
        if path.is_file():
            server.files.put(f"repo/{path.relative_to(repo)}", path.read_bytes())


def verify(web, **how):
    prefixes = [f"{web.url}/archive/"]
    repo = how.pop("repo", f"{web.url}/repo")
    return verify_as_browser(repo, authorize_virtual_chunk_access=prefixes, seed=1, **how)


def found(report):
    return {(str(each.kind), each.url.split("/")[3]) for each in report.problems if each.stops}


def test_a_server_that_lacks_nothing_passes(web, run):
    words = ["verify", "--as-browser", f"{web.url}/repo", "--authorize", f"{web.url}/archive/"]
    status, output, _ = run(*words)
    assert (status, output.splitlines()[-1]) == (0, "  a page can read it"), output
    report = json.loads(run(*words, "-o", "json")[1])
    assert (report["ok"], report["problems"], report["files"]) == (True, [], 2)
    assert report["objects"] >= 3
    asked = {each.headers.get("origin") for each in web.rules.requests if "range" in each.headers}
    assert "https://page.example" in asked

    web.files.shared = {}
    assert verify(web, origin=f"{web.url}/map/index.html").ok  # a page of this server
    status, output, _ = run(*words, "--origin", "https://maps.example.org")
    assert status == 1
    assert (
        "Access-Control-Allow-Origin is missing with status 206, and the page is at https://maps"
        in output
    )
    assert "Let the server send Access-Control-Allow-Origin: *" in output


def test_what_a_server_lacks_is_named(web):
    files, shared = web.files, web.files.shared
    files.shared = shared | {ORIGIN: "https://other.example"}
    one, absent = (report := verify(web)).problems
    assert (one.kind, one.urls + absent.urls) == ("cors", report.objects + report.files)
    files.shared = shared | {ORIGIN: PAGE}
    assert verify(web, origin=PAGE).ok
    files.shared = {name: value for name, value in shared.items() if "expose" not in name}
    assert found(verify(web)) == {("exposed", "archive")}
    files.shared = {name: value for name, value in shared.items() if "headers" not in name}
    remarks = {each.kind for each in verify(web).problems if not each.stops}
    assert remarks == {"preflight"}
    files.shared = shared

    faults = {
        "ranges": WHOLE,
        "redirect": redirected(f"{web.url}/elsewhere"),
        "unreachable": refused(403),
        "validator": without("etag"),
        "exposed": without("access-control-expose-headers"),
    }
    for kind, fault in faults.items():
        rule = web.rules.add(fault, target="^/archive/day1", times=math.inf)
        (problem,) = [each for each in verify(web).problems if each.stops]
        assert (problem.kind, problem.urls) == (kind, 1)
        assert problem.url.endswith("/archive/day1.nc")
        rule.times = 0
    for fault, kind in ((without(ORIGIN), "cors"), (refused(403), "unreachable")):
        rule = web.rules.add(fault, target="^/repo/config.yaml", times=math.inf)
        (problem,) = verify(web).problems
        assert (problem.kind, problem.url) == (kind, f"{web.url}/repo/config.yaml")
        assert "404" in problem.do
        rule.times = 0
    web.rules.add(redirected("/away"), target="^/repo/repo")
    request = PageRequest(url=f"{web.url}/repo/repo", end=1, is_file=False)
    (problem,) = look_as_browser(request, PAGE)
    assert (problem.kind, problem.stops) == ("redirect", False)
    files.etags["archive/day1.nc"] = '"another"'
    assert found(verify(web)) == {("changed", "archive")}


def test_addresses_that_no_page_may_read_are_named(web, tmp_path, run):
    insecure = web.url.replace("127.0.0.1", "0.0.0.0")
    report = verify(web, repo=f"{insecure}/repo")
    assert found(report) == {("insecure", "repo")}
    assert report.problems[0].urls == report.objects
    assert verify(web, repo=f"{insecure}/repo", origin=PAGE).ok

    assert run("verify", f"{web.url}/repo", "--origin", PAGE)[0] == 2
    assert run("verify", f"{web.url}/repo", "--as-browser", "--full")[0] == 2
    with pytest.raises(UnauthorizedError, match="verification needs to read"):
        verify_as_browser(f"{web.url}/repo")
    with pytest.raises(InvalidInputError, match="over http and https only"):
        verify(web, repo=tmp_path / "repo")
    with pytest.raises(InvalidInputError, match="not the address of a page"):
        verify(web, origin="maps.example.org")

    icevirt.build(tmp_path / "archive", tmp_path / "local", concat_dim="time")
    show(web, tmp_path / "local")
    (problem,) = verify(web).problems
    assert (problem.kind, problem.urls) == ("location", 2)
    assert "--publish-as" in problem.do
