"""Facts of zarr.json that the snapshot repeats."""

import pytest

from icevirt.model.snapshot import grid_facts


def regular(*edges):
    return {"name": "regular", "configuration": {"chunk_shape": list(edges)}}


def rectilinear(*axes):
    return {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": list(axes)}}


GRIDS = {
    "a scalar": ([], regular(), ()),
    "chunks that divide the shape": ([4, 6], regular(2, 3), (2, 2)),
    "a last chunk that is not full": ([5], regular(2), (3,)),
    "a chunk larger than the array": ([5], regular(9), (1,)),
    "no elements": ([0], regular(3), (0,)),
    "chunks of no elements": ([0], regular(0), (0,)),
    "listed edges": ([60, 8], rectilinear([10, 20, 30], [8]), (3, 1)),
    "listed edges that repeat": ([60], rectilinear([[10, 4], 20]), (5,)),
    "one number for an axis is the edge of all its chunks": ([10], rectilinear(4), (3,)),
}


@pytest.mark.parametrize(("shape", "grid", "chunks"), GRIDS.values(), ids=GRIDS.keys())
def test_chunks_are_counted(shape, grid, chunks):
    assert grid_facts({"shape": shape, "chunk_grid": grid}).num_chunks == chunks
