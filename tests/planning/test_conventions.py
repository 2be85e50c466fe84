"""Attributes by which conventions other than CF scale values are compared, not shown for all."""

import h5py
import numpy as np
import pytest

import icevirt
from builds.support import opened
from icevirt.errors import CombineError
from icevirt.model.snapshot import document_of


def nwb(file, number, *, declared, attribute="conversion"):
    if declared:
        file.attrs["nwb_version"] = "2.7.0"
    data = file.create_dataset("acquisition/v/data", data=np.array([1000, 2000], "i2"))
    data.attrs.update({"conversion": 1.0, "unit": "V"})
    data.attrs[attribute] = {"conversion": (1.0, 0.001), "unit": ("V", "A")}[attribute][number]


def nwb_unit(file, number, *, declared):
    nwb(file, number, declared=declared, attribute="unit")


def openpmd(file, number, *, declared):
    if declared:
        file.attrs["openPMD"] = "1.1.0"
    file.create_dataset("data/0/meshes/E", data=[1.0, 2.0]).attrs["unitSI"] = (1.0, 1e9)[number]


def openpmd_dimension(file, number, *, declared):
    if declared:
        file.attrs["openPMD"] = "1.1.0"
    file.create_dataset("data/0/meshes/E/x", data=[1.0, 2.0])
    record = file["data/0/meshes/E"]
    record.attrs["unitDimension"] = np.array([[1.0, 0, 0], [0, 1.0, 0]])[number]


def odim(file, number, *, declared):
    if declared:
        file.attrs["Conventions"] = "ODIM_H5/V2_2"
    file.create_dataset("dataset1/data1/data", data=np.array([10, 20], "u1"))
    what = file.create_group("dataset1/data1/what")
    what.attrs.update({"gain": (0.5, 0.1)[number], "offset": -32.0, "nodata": 255.0})


def anndata(file, number, *, declared):
    sparse = file.create_group("X")
    name = "encoding-type" if declared else "encoding"
    sparse.attrs[name] = ("csr_matrix", "csc_matrix")[number]
    for part in ("data", "indices", "indptr"):
        sparse[part] = np.arange(3)


def pandas(file, number, *, declared):
    if declared:
        file.attrs["PYTABLES_FORMAT_VERSION"] = "2.1"
    axis = file.create_dataset("t/axis1", data=np.array([1, 2]) * 10 ** (18 - 3 * number))
    axis.attrs["kind"] = np.bytes_(("datetime64[ns]", "datetime64[us]")[number])


CASES = {
    "NWB": (nwb, "conversion", "/acquisition/v/data"),
    "NWB's unit": (nwb_unit, "unit", "/acquisition/v/data"),
    "openPMD": (openpmd, "unitSI", "/data/0/meshes/E"),
    "openPMD's dimension": (openpmd_dimension, "unitDimension", "/data/0/meshes/E"),
    "ODIM_H5": (odim, "gain", "/dataset1/data1/what"),
    "AnnData": (anndata, "encoding-type", "/X"),
    "pandas": (pandas, "kind", "/t/axis1"),
}


def files_of(folder, write, *, declared, numbers=(0, 1)):
    for place, number in enumerate(numbers):
        with h5py.File(folder / f"f{place}.h5", "w") as file:
            write(file, number, declared=declared)
    return [str(folder / f"f{place}.h5") for place in range(len(numbers))]


def build(files, folder, **options):
    options = {"labels": "f{n:d}.h5", **options}
    repo = str(folder / "repo")
    return repo, icevirt.build(files, repo, combine_options=options, executor="in-process")


@pytest.mark.parametrize(("write", "attribute", "path"), CASES.values(), ids=CASES)
def test_a_declared_convention_is_refused_by_name(write, attribute, path, tmp_path):
    files = files_of(tmp_path, write, declared=True)
    with pytest.raises(CombineError) as caught:
        build(files, tmp_path)
    message = str(caught.value)
    assert f"{attribute} of {path} says what its numbers mean" in message
    assert f"by the convention {caught.value.facts['convention']}" in message
    assert caught.value.facts["first"] in message
    assert caught.value.facts["other"] in message


@pytest.mark.parametrize(("write", "attribute", "path"), CASES.values(), ids=CASES)
def test_the_proposed_way_shows_no_false_attribute(write, attribute, path, tmp_path):
    files = files_of(tmp_path, write, declared=True)
    repo, report = build(files, tmp_path, combine_attrs="drop_conflicts")
    session = icevirt.Repository.open(repo).readonly_session("main")
    assert attribute not in document_of(session.find(path))["attributes"]
    assert any(attribute in str(each) for each in report.findings)


@pytest.mark.parametrize(("write", "attribute", "path"), CASES.values(), ids=CASES)
def test_elsewhere_a_line_names_it(write, attribute, path, tmp_path):
    _, report = build(files_of(tmp_path, write, declared=False), tmp_path)
    attribute = "encoding" if attribute == "encoding-type" else attribute
    lines = [str(each) for each in report.findings]
    assert any(f"the attribute {attribute} of {path} is not the same" in line for line in lines)


@pytest.mark.parametrize("write", [write for write, _, _ in CASES.values()], ids=CASES)
def test_equal_attributes_are_neither_refused_nor_named(write, tmp_path):
    files = files_of(tmp_path, write, declared=True, numbers=(1, 1))
    _, report = build(files, tmp_path)
    assert not any("is not the same" in str(each) for each in report.findings)


def test_a_group_of_any_file_is_looked_at_where_the_convention_is_declared(tmp_path):
    files = files_of(tmp_path, odim, declared=True, numbers=(0, 1, 0))
    with pytest.raises(CombineError, match="gain of /dataset1/data1/what"):
        build(files, tmp_path)


def test_files_that_are_added_later_are_held_against_those_there(tmp_path):
    files = files_of(tmp_path, nwb, declared=True, numbers=(0, 0, 1))
    repo, _ = build(files[:2], tmp_path)
    with pytest.raises(CombineError, match="by the convention NWB"):
        icevirt.append(files[2:], repo, executor="in-process")


def test_a_correction_for_all_files_is_taken(tmp_path):
    files = files_of(tmp_path, nwb, declared=True)
    attrs = {"/acquisition/v/data": {"conversion": 0.001}}
    repo, _ = build(files, tmp_path, attrs=attrs)
    assert opened(repo, group="acquisition/v")["data"].attrs["conversion"] == 0.001
