"""What must hold of snapshots and manifests is found where it does not."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icevirt.model.chunks import ChunkTable
from icevirt.model.config.containers import VirtualChunkContainer, local_filesystem_store
from icevirt.model.config.document import RepositoryConfig
from icevirt.model.repo_info import SnapshotSummary
from icevirt.model.snapshot import ManifestFile
from icevirt.versioning.invariants import of_snapshot, of_window
from unit.versioning.states import array, group, key, manifest, snapshot, table

FILES = VirtualChunkContainer(url_prefix="file:///d/", store=local_filesystem_store("/d"))
CONFIG = RepositoryConfig(virtual_chunk_containers={"file:///d/": FILES})
A = array(1, "/a", 4, manifests=[manifest(1, (0, 4))])


def summary(held):
    return SnapshotSummary(
        id=held.id, parent_id=None, flushed_at=held.flushed_at, message=held.message
    )


def listed(*nodes):
    """Return a snapshot that lists the manifests of its nodes."""
    refs = {ref.object_id for node in nodes for ref in getattr(node, "manifests", ())}
    rows = tuple(ManifestFile(id=each, size_bytes=9, num_chunk_refs=1) for each in refs)
    return replace(snapshot(*nodes), manifest_files=rows)


def problems(held, of=None):
    return sorted(each.code for each in of_snapshot(held, of or summary(held)))


def test_a_sound_snapshot_has_no_problem():
    assert problems(listed(A, group(2, "/g"), array(3, "/g/b"))) == []


@pytest.mark.parametrize(
    ("held", "code"),
    [
        (listed(A, array(1, "/b")), "node-id"),
        (listed(A, array(2, "/a/b")), "below-array"),
        (listed(A._replace(user_data=b"{")), "metadata"),
        (listed(A._replace(path="/a/")), "metadata"),
        (listed(A._replace(shape=(5,))), "grid"),
        (listed(A._replace(dimension_names=None)), "grid"),
        (snapshot(A), "manifest-row"),
        (listed(A._replace(manifests=(manifest(1, (0, 3)), manifest(2, (2, 4))))), "overlap"),
        (replace(listed(), manifest_files=listed(A).manifest_files), "unused-manifest"),
    ],
)
def test_what_does_not_hold_is_found(held, code):
    assert code in problems(held) or {"path"} & {*problems(held)}


def test_a_summary_repeats_the_snapshot():
    held = listed(A)
    other = replace(summary(held), message="other", flushed_at=9)
    assert problems(held, other) == ["summary", "summary"]
    (one, _) = of_snapshot(held, other)
    assert str(one).endswith("flushed_at differs between the snapshot and the repo info [summary]")


boxes = st.lists(
    st.tuples(*[st.tuples(st.integers(0, 5), st.integers(1, 3)).map(lambda b: (b[0], sum(b)))] * 2),
    min_size=1,
    max_size=6,
)


@settings(max_examples=40)
@given(boxes)
def test_boxes_that_overlap_are_found_as_by_all_pairs(found):
    refs = tuple(manifest(n + 1, *box) for n, box in enumerate(found))
    node = array(1, "/a", 9, 9, dims=None, manifests=refs)
    pairs = [
        all(max(a, c) < min(b, d) for (a, b), (c, d) in zip(one, other, strict=True))
        for at, one in enumerate(found)
        for other in found[:at]
    ]
    assert ("overlap" in problems(listed(node))) == any(pairs)


# -- manifests ------------------------------------------------------------------------------------


def window(held, *, node=A, box=((0, 4),), config=CONFIG):
    return [each.code for each in of_window(node, manifest(1, *box), held, config)]


def test_a_sound_window_has_no_problem():
    assert window(table(0, 1, 2, 3)) == []


@pytest.mark.parametrize(
    ("held", "box", "code"),
    [
        (None, ((0, 4),), "missing-array"),
        (table((0, 0), ndim=2), ((0, 4),), "dimensions"),
        (ChunkTable.empty(1), ((0, 4),), "empty"),
        (table(0, 1), ((0, 4),), "extents"),
        (table(0, 9), ((0, 10),), "outside"),
        (table(0, 1).reindex(np.array([[1], [0]])), ((0, 2),), "order"),
        (table(0, 1).reindex(np.array([[1], [1]])), ((1, 2),), "twice"),
        (replace(table(0), length=np.zeros(1, np.uint64)), ((0, 1),), "zero-length"),
    ],
)
def test_a_window_is_what_its_node_says(held, box, code):
    assert code in window(held, box=box)


def test_references_need_a_container():
    assert window(table(0, 1, 2, 3), config=RepositoryConfig()) == ["no-container"]
    inline = ChunkTable.of_inline(index=np.arange(4)[:, None], chunks=[b"1"] * 4)
    assert window(inline, config=RepositoryConfig()) == []
    assert key(1) == A.id
