"""Processes that commit to one branch of a local repository at once lose nothing acknowledged."""

import multiprocessing

import numpy as np

from icevirt.logic.conflicts import ConflictDetector
from icevirt.model.chunks import ChunkTable
from icevirt.repo.repository import Repository
from repo.support import array_json, sound

WRITERS, COMMITS = 4, 10


def write(path: str, writer: int, start, results) -> None:
    """Commit chunks of one's own, each in a commit; report the snapshots."""
    repo = Repository.open(path)
    start.wait()
    made = []
    for number in range(COMMITS):
        session = repo.writable_session("main")
        chunk = ChunkTable.inlined(
            index=np.array([[writer * COMMITS + number]]), chunks=[np.int32(writer).tobytes() * 12]
        )
        session.set_chunks("/a", chunk)
        made.append(session.commit(f"{writer}.{number}", rebase_with=ConflictDetector()))
    results.put(made)


def test_every_acknowledged_commit_is_in_the_history_once(repo_path):
    repo = Repository.create(repo_path)
    session = repo.writable_session("main")
    shape = (WRITERS * COMMITS * 12,)
    session.add_array("/a", array_json(shape), ChunkTable.empty(1))
    session.commit("base")
    spawn = multiprocessing.get_context("spawn")
    start, results = spawn.Barrier(WRITERS), spawn.Queue()
    racers = [
        spawn.Process(target=write, args=(repo_path, writer, start, results))
        for writer in range(WRITERS)
    ]
    for racer in racers:
        racer.start()
    acknowledged = sorted(snapshot for _ in racers for snapshot in results.get(timeout=120))
    for racer in racers:
        racer.join()
    history = [told.id for told in repo.ancestry(branch="main")][:-2]
    assert sorted(history) == acknowledged
    assert len(acknowledged) == WRITERS * COMMITS
    table = repo.readonly_session("main").array_table("/a")
    assert table.index.ravel().tolist() == list(range(WRITERS * COMMITS))
    assert sound(repo_path)
