"""The picture of the history is the official client's, except where lanes cross."""

import random
import re

import pytest

from icevirt.errors import InvalidInputError, RefNotFoundError
from icevirt.repo.repository import Repository
from repo.support import group_json

ROOT = "1CECHNKREP0F1RSTCMT0"


def grown(repo, seed):
    """Commit and branch at random; return the official client's view of it too."""
    rng = random.Random(seed)
    tips, all_commits = {"main": ROOT}, [ROOT]
    for step in range(12):
        if rng.random() < 0.3:
            tips[f"b{step}"] = rng.choice(all_commits)
            repo.create_branch(f"b{step}", tips[f"b{step}"])
        else:
            branch = rng.choice(sorted(tips))
            session = repo.writable_session(branch)
            session.add_group("/", group_json()) if session.find("/") is None else None
            session.set_metadata("/", group_json(step=step))
            message = rng.choice([f"{step} on {branch}", "two\nlines", "long " * 30])
            tips[branch] = session.commit(message)
            all_commits.append(tips[branch])
    for tag in ("tagged", "a2"):
        repo.create_tag(tag, rng.choice(all_commits))


def lines(graph):
    return [line.rstrip() for line in str(graph).rstrip().split("\n")]


def nameless(graph):
    """The lines without names: of one version's history the official client shows some only."""
    return [re.sub(r" \(.*?\)", "", line) for line in lines(graph)]


@pytest.mark.parametrize("seed", range(8))
def test_the_picture_is_the_official_clients(repo, official, seed):
    grown(repo, seed)
    ours, theirs = repo.ancestry_graph(plain=True), official().ancestry_graph(plain=True)
    for mine, other in zip(lines(ours), lines(theirs), strict=True):
        assert mine == other or ("\u253c" in mine and mine[-20:] == other[-20:])
    for branch in repo.list_branches():
        ours = repo.ancestry_graph(branch=branch, plain=True)
        assert nameless(ours) == nameless(official().ancestry_graph(branch=branch, plain=True))


def test_one_version_is_one_lane(repo, official):
    grown(repo, 3)
    for which in ({"tag": "a2"}, {"snapshot_id": repo.lookup_tag("a2")}):
        ours, theirs = (
            repo.ancestry_graph(plain=True, **which),
            official().ancestry_graph(plain=True, **which),
        )
        assert nameless(ours) == nameless(theirs)


def test_colours_are_only_for_terminals(repo):
    grown(repo, 3)
    graph = repo.ancestry_graph()
    assert "\x1b[" in str(graph)
    assert "\x1b[" not in str(repo.ancestry_graph(plain=True))
    drawn = graph._repr_svg_()
    assert drawn.count("<circle") == len(graph.commits)
    assert "tagged" in drawn


def test_names_are_no_markup(repo):
    session = repo.writable_session("main")
    session.add_group("/", group_json())
    session.commit("<script>")
    assert "<script>" not in repo.ancestry_graph()._repr_svg_()


def test_only_one_version_is_named(repo):
    with pytest.raises(InvalidInputError):
        repo.ancestry_graph(branch="main", tag="t")
    with pytest.raises(RefNotFoundError):
        repo.ancestry_graph(tag="t")


def test_a_long_history_is_drawn_in_linear_time(tmp_path):
    """10,000 snapshots in one lane: seconds would be a loop in a loop."""
    import time
    from dataclasses import replace

    from icevirt.ids import ObjectId12
    from icevirt.versioning.history import ancestry_graph

    info = Repository.create(tmp_path / "r").head.read().info
    snapshots, tip = dict(info.snapshots), info.branches["main"]
    for _ in range(10_000):
        key = ObjectId12.random()
        output = replace(snapshots[tip], id=key, parent_id=tip, flushed_at=len(snapshots))
        snapshots[key], tip = output, key
    long = info._replace(snapshots=snapshots, branches={"main": tip})
    start = time.process_time()
    assert len(lines(ancestry_graph.graph(long, long.branches, plain=True))) == 20_001
    assert time.process_time() - start < 2
