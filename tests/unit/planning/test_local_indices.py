"""What variables number is found by the words of UGRID and CF."""

import numpy as np
import pytest

from icevirt.planning.meaning.local_indices import Variable, indices_among, local_indices
from unit.planning.scanned_facts import data, facts_of, step

ONES = np.ones((3, 3), "i4")


def mesh(**attributes):
    """Return a mesh, with the elements that it can name."""
    return {
        "mesh": data((), np.int32(0), attrs={"cf_role": "mesh_topology", **attributes}),
        "index": data(("face", "three"), ONES),
        "x": data("node", np.zeros(3)),
        "edges": data(("edge", "two"), np.ones((4, 2), "i4")),
        "faces": data(("face", "three"), ONES),
    }


CASES = {
    "nodes, by their coordinates": (
        mesh(face_node_connectivity="index", node_coordinates="x y"), {"node"}
    ),
    "nodes, by name": (mesh(face_node_connectivity="index", node_dimension="node"), {"node"}),
    "nodes, by what their dimension is called": (mesh(face_node_connectivity="index"), {"node"}),
    "nodes of edges": (mesh(edge_node_connectivity="index", node_coordinates="x"), {"node"}),
    "nodes of a boundary": (
        mesh(boundary_node_connectivity="index", node_coordinates="x"), {"node"}
    ),
    "edges, by their nodes": (
        mesh(face_edge_connectivity="index", edge_node_connectivity="edges"), {"edge"}
    ),
    "faces beside faces": (
        mesh(face_face_connectivity="index", face_node_connectivity="faces"), {"face"}
    ),
    "faces, by name": (
        mesh(edge_face_connectivity="index", face_dimension="face"), {"face"}
    ),
    "a role alone": (
        {"index": data(("face", "three"), ONES, attrs={"cf_role": "face_node_connectivity"})},
        set(),
    ),
    "the first index alone": (
        {"index": data(("face", "three"), ONES, attrs={"start_index": np.int32(1)})}, set()
    ),
    "instances": (
        {"index": data("obs", np.ones(3, "i4"), attrs={"instance_dimension": "station"})},
        {"station"},
    ),
    "gathered points": (
        {"index": data("point", np.ones(3, "i4"), attrs={"compress": "lat lon"})}, {"lat", "lon"}
    ),
    "counts": ({"index": data("station", np.ones(3), attrs={"sample_dimension": "obs"})}, None),
    "values": ({"index": data("obs", np.ones(3))}, None),
}  # fmt: skip


@pytest.mark.parametrize(("variables", "wanted"), CASES.values(), ids=CASES)
@pytest.mark.parametrize("group", ["", "/g/"], ids=["root", "group"])
def test_what_is_numbered_is_found(variables, wanted, group):
    facts = facts_of(step("a", 0.0, **{f"{group}{name}": v for name, v in variables.items()}))
    found = local_indices(facts).get(f"{group or '/'}index")
    assert (None if found is None else found.numbers) == wanted


@pytest.mark.parametrize(("said", "numbers"), [("cell", {"cell"}), ("", None)])
@pytest.mark.parametrize("is_first", [True, False])
def test_what_a_person_says_counts_wherever_the_mesh_stands(said, numbers, is_first):
    index = Variable(path="/nodes", dimensions=("face", "three"), attributes={})
    rest = [
        Variable(
            path="/mesh",
            dimensions=(),
            attributes={"face_node_connectivity": "nodes", "node_coordinates": "x"},
        ),
        Variable(path="/x", dimensions=("node",), attributes={}),
    ]
    variables = [index, *rest] if is_first else [*rest, index]
    assert indices_among(variables)["/nodes"].numbers == {"node"}
    found = indices_among(variables, {"nodes": said})
    assert (found["/nodes"].numbers if found else None) == numbers
