"""Partitions of meshes: each file numbers its own elements."""

import netCDF4
import numpy as np
import xarray as xr

from archives.archive import DECODED, archive
from archives.writing import numbers, put


def joined(index, node, along, *, first=1, times=1):
    """Return an oracle: files one after the other, and numpy adds what lies before each of them.

    Args:
        index: Name of the variable that numbers elements.
        node: Dimension of these.
        along: Dimensions along which files follow one another.
        first: The number of the first element, where files do not say.
        times: Files of each partition, which are steps in time.
    """

    def answer(files):
        opened = [xr.open_dataset(each, decode_times=DECODED).load() for each in files]
        parts = [
            xr.concat(opened[at : at + times], "time", data_vars="minimal", coords="minimal",
                      compat="equals", combine_attrs="override")
            for at in range(0, len(files), times)
        ] if times > 1 else opened  # fmt: skip
        before = 0
        for each in parts:
            values = each[index].values
            start = int(each[index].attrs.get("start_index", first))
            each[index].values = np.where(values >= start, values + before, values)
            before += each.sizes[node]
        made = parts[0][[name for name in parts[0] if not {*along} & {*parts[0][name].dims}]]
        for name in parts[0].variables:
            mine = [dim for dim in along if dim in parts[0][name].dims]
            if mine:
                made[name] = xr.concat([each[name] for each in parts], mine[0],
                                       combine_attrs="override", coords="minimal", compat="override")  # fmt: skip
        return made.set_coords([name for name in parts[0].coords if name in made])

    return answer


def ugrid(path, part, faces, nodes, *, step=0, fill=-999, steps=2):
    """Write a partition as Delft3D FM does."""
    with netCDF4.Dataset(path, "w") as file:
        file.Conventions = "CF-1.8 UGRID-1.0"
        file.createDimension("time", None)
        put(file, "time", ("time",), (np.arange(steps) + steps * step) * 3600.0,
            units="seconds since 2013-12-01 00:00:00 +00:00")  # fmt: skip
        put(file, "mesh2d", (), np.int32(0), cf_role="mesh_topology", topology_dimension=np.int32(2),
            node_coordinates="mesh2d_node_x mesh2d_node_y", face_node_connectivity="mesh2d_face_nodes",
            face_dimension="mesh2d_nFaces")  # fmt: skip
        for name, shift in (("x", 0), ("y", 0.25)):
            put(file, f"mesh2d_node_{name}", ("mesh2d_nNodes",),
                numbers(nodes, begin=100 * part + shift, kind="f8"), mesh="mesh2d")  # fmt: skip
        corners = (np.arange(faces * 3) * 2 + part) % nodes + 1
        corners = corners.reshape(faces, 3).astype("i4")
        corners[0, 2] = fill
        put(file, "mesh2d_face_nodes", ("mesh2d_nFaces", "mesh2d_nMax_face_nodes"), corners,
            fill=np.int32(fill), cf_role="face_node_connectivity", start_index=np.int32(1))  # fmt: skip
        put(file, "mesh2d_flowelem_domain", ("mesh2d_nFaces",), np.full(faces, part, "i4"))
        for name, dim, length in (
            ("mesh2d_sa1", "mesh2d_nFaces", faces),
            ("mesh2d_s1n", "mesh2d_nNodes", nodes),
        ):
            put(file, name, ("time", dim), numbers(steps, length, begin=1000 * part + 50 * step, kind="f8"),
                fill=-999.0, how={"zlib": True}, mesh="mesh2d")  # fmt: skip


ELEMENTS = ("mesh2d_nFaces", "mesh2d_nNodes")


@archive(
    "UGRID: partitions of one mesh, of equal sizes, as one mesh", tool="Delft3D FM",
    oracle=joined("mesh2d_face_nodes", "mesh2d_nNodes", ELEMENTS), choose="--rebase-indices",
)  # fmt: skip
def make_even_partitions(folder):
    for part in range(3):
        ugrid(folder / f"gtsm_000{part}_map.nc", part, 4, 5)


@archive(
    "UGRID: partitions of other sizes, as one mesh", tool="Delft3D FM",
    oracle=joined("mesh2d_face_nodes", "mesh2d_nNodes", ELEMENTS), choose="--rebase-indices",
)  # fmt: skip
def make_uneven_partitions(folder):
    for part, (faces, nodes) in enumerate([(4, 5), (3, 4), (6, 7)]):
        ugrid(folder / f"gtsm_000{part}_map.nc", part, faces, nodes)


@archive(
    "UGRID: partitions of other sizes, of which each gets a group", tool="Delft3D FM",
    oracle=lambda files: xr.open_dataset(files[1], decode_times=DECODED),
    choose="--on-mismatch eras", opened={"group": "era_1"}, attrs=False,
)  # fmt: skip
def make_partitions_in_groups(folder):
    for part, (faces, nodes) in enumerate([(4, 5), (3, 4), (6, 7)]):
        ugrid(folder / f"gtsm_000{part}_map.nc", part, faces, nodes)


@archive(
    "UGRID: partitions of several times each, a file for each of both", tool="SCHISM",
    oracle=joined("mesh2d_face_nodes", "mesh2d_nNodes", ELEMENTS, times=3), choose="--rebase-indices",
)  # fmt: skip
def make_partitions_and_times(folder):
    for part, (faces, nodes) in enumerate([(4, 5), (3, 4)]):
        for step in range(3):
            ugrid(folder / f"schout_00000{part}_{step + 1}.nc", part, faces, nodes, step=step)


@archive(
    "UGRID: a number that means no element, and that an element of the whole mesh would get",
    tool="MIKE 21 FM", oracle=joined("mesh2d_face_nodes", "mesh2d_nNodes", ELEMENTS),
    choose="--rebase-indices",
)  # fmt: skip
def make_partitions_with_a_low_fill_value(folder):
    for part in range(3):
        ugrid(folder / f"part{part}.nc", part, 4, 5, fill=9)


@archive(
    "SCHISM: ranks without positions of nodes, whose mesh says nothing of its dimensions", tool="SCHISM",
    oracle=joined("SCHISM_hgrid_face_nodes", "nSCHISM_hgrid_node",
                  ("nSCHISM_hgrid_face", "nSCHISM_hgrid_node")),
    choose="--rebase-indices",
)  # fmt: skip
def make_schism_ranks(folder):
    for rank, nodes in enumerate((5, 4)):
        with netCDF4.Dataset(folder / f"schout_00000{rank}_1.nc", "w") as file:
            file.createDimension("time", None)
            put(file, "time", ("time",), np.array([3600.0, 7200.0]),
                units="seconds since 2000-01-01 00:00:00 +0000", base_date="2000 1 1 0 0")  # fmt: skip
            put(file, "SCHISM_hgrid", ("one",), np.array([b"g"], "S1"), cf_role="mesh_topology",
                face_node_connectivity="SCHISM_hgrid_face_nodes")  # fmt: skip
            corners = np.arange((nodes - 1) * 4).reshape(nodes - 1, 4) % nodes + 1
            put(file, "SCHISM_hgrid_face_nodes", ("nSCHISM_hgrid_face", "nMaxSCHISM_hgrid_face_nodes"),
                corners.astype("i4"), fill=np.int32(-1), start_index=np.int32(1))  # fmt: skip
            put(file, "elev", ("time", "nSCHISM_hgrid_node"), numbers(2, nodes, begin=10 * rank))


def fvcom(files):
    """Join partitions whose elements are numbered too."""
    made = joined("nv", "node", ("nele", "node"))(files)
    own = [xr.open_dataset(each).load() for each in files]
    before = np.cumsum([0, *(each.sizes["nele"] for each in own)])
    moved = [
        np.where(e.nbe > 0, e.nbe + at, 0).astype("i4")
        for e, at in zip(own, before[:-1], strict=True)
    ]
    made["nbe"] = (("three", "nele"), np.concatenate(moved, axis=1), own[0].nbe.attrs)
    return made


@archive(
    "FVCOM: partitions; corners and neighbors of elements are numbered from 1, 0 is a boundary",
    tool="FVCOM", oracle=fvcom, choose="--rebase-indices",
)  # fmt: skip
def make_fvcom_partitions(folder):
    for part, (cells, nodes) in enumerate([(4, 6), (3, 5)]):
        with netCDF4.Dataset(folder / f"estuary_{part:04d}.nc", "w") as file:
            file.createDimension("time", None)
            put(file, "time", ("time",), np.array([0.0, 0.5]), units="days since 1858-11-17 00:00:00",
                format="modified julian day (MJD)", time_zone="UTC")  # fmt: skip
            for name, kind, count, low in (("nv", "nodes surrounding element", nodes, 1),
                                           ("nbe", "elements surrounding each element", cells, 0)):  # fmt: skip
                found = (np.arange(3 * cells).reshape(3, cells) * 2 + part) % count + low
                put(file, name, ("three", "nele"), found.astype("i4"), long_name=kind)
            put(file, "x", ("node",), numbers(nodes, begin=100 * part), units="meters")
            put(file, "zeta", ("time", "node"), numbers(2, nodes, begin=10 * part), units="meters")
            put(file, "ua", ("time", "nele"), numbers(2, cells, begin=20 * part))


@archive(
    "Indexed ragged arrays (CF 9.3.4): observations name stations of their own file", tool="a data center",
    oracle=joined("station_index", "station", ("obs", "station"), first=0),
    options=("--concat-dim", "obs", "--concat-dim", "station"), choose="--rebase-indices",
)  # fmt: skip
def make_indexed_stations(folder):
    for number, (stations, rows) in enumerate([(2, 5), (3, 4)]):
        with netCDF4.Dataset(folder / f"stations_{number}.nc", "w") as file:
            put(
                file,
                "lat",
                ("station",),
                numbers(stations, begin=10 * number),
                units="degrees_north",
            )
            put(file, "station_index", ("obs",), (np.arange(rows) % stations).astype("i4"),
                instance_dimension="station", long_name="which station this observation is of")  # fmt: skip
            put(file, "t2m", ("obs",), numbers(rows, begin=100 * number), units="K")


@archive(
    "Partitions of a mesh along their faces alone, with nodes of each file", tool="xarray",
    oracle=lambda files: None, options=("--concat-dim", "face"), refused="numbers elements of its own file",
)  # fmt: skip
def make_faces_alone(folder):
    for part in range(2):
        with netCDF4.Dataset(folder / f"part{part}.nc", "w") as file:
            put(file, "corners", ("face", "three"), (np.arange(12).reshape(4, 3) % 5).astype("i4"),
                start_index=np.int32(0))  # fmt: skip
            put(file, "depth", ("face",), numbers(4, begin=10 * part))
