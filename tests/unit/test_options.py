"""Option objects are true from birth, say what they hold, and replace what stood in their place."""

import dataclasses
import pickle
import re

import numpy as np
import pytest

import icevirt
from icevirt.api.commit_options import OBJECTS
from icevirt.archive.options import declare, spell_options
from icevirt.errors import ArgumentError, InvalidInputError

EVERY = [pytest.param(options, id=options.__name__) for options in OBJECTS]

BAD = {
    "a choice that is none": ("combine_options", {"missing": "fill"}, "missing='fill'"),
    "a name that is none": ("combine_options", {"pad": 3}, "pad=3"),
    "a spacing of nothing": ("combine_options", {"spacing": {"time": "0h"}}, "spacing="),
    "a tolerance below 0": ("combine_options", {"tolerance": -1}, "tolerance=-1"),
    "labels that are a number": ("combine_options", {"labels": 3}, "labels=3"),
    "a rename that is a list": ("combine_options", {"rename": ["a"]}, "rename="),
    "attributes of a text": ("combine_options", {"attrs": {"/": "x"}}, "attrs="),
    "a function of no module": ("combine_options", {"preprocess": "tidy"}, "preprocess='tidy'"),
    "a number that is none": ("combine_options", {"max_native_bytes": "9"}, "max_native_bytes='9'"),
    "a word of xarray's that is none": ("combine_options", {"combine_attrs": "x"}, "combine_attrs"),
    "values that decide": ("combine_options", {"data_vars": "different"}, "data_vars='different'"),
    "a policy that is none": ("scan_options", {"variable_policy": "drop"}, "variable_policy="),
    "a share above all": ("scan_options", {"max_bad_files": "101%"}, "max_bad_files='101%'"),
    "no time": ("scan_options", {"file_timeout": 0}, "file_timeout=0"),
    "memory of no unit": ("scan_options", {"file_memory": "4 cows"}, "file_memory='4 cows'"),
    "no scanner": ("scan_options", {"scanner": "nosuch"}, "scanner='nosuch'"),
    "a group that is None": ("scan_options", {"source_group": None}, "source_group=None"),
    "a branch that is a number": ("commit_options", {"branch": 3}, "branch=3"),
    "metadata that is no JSON": ("commit_options", {"metadata": {"a": {1}}}, "metadata="),
    "fewer chunks than none": ("commit_options", {"verify": -1}, "verify=-1"),
    "a choice that is text": ("commit_options", {"allow_changes": "yes"}, "allow_changes='yes'"),
    "a container of no name": ("commit_options", {"containers": {"a/b": "/x"}}, "containers="),
}


@pytest.mark.parametrize(("keyword", "given", "output"), BAD.values(), ids=BAD)
def test_a_bad_value_is_refused_at_birth_by_its_name(keyword, given, output):
    (options,) = (each for each in OBJECTS if keyword == each.KEYWORD)
    for make in (lambda: options(**given), lambda: options.of(given)):
        with pytest.raises(InvalidInputError, match=re.escape(output)):
            make()


@pytest.mark.parametrize("call", ["build", "plan", "scan_files"])
def test_a_bad_value_is_refused_before_any_work(call, tmp_path):
    where = {"build": ["repo"], "plan": [], "scan_files": ["catalog"]}[call]
    with pytest.raises(InvalidInputError, match="missing='fill'"):
        getattr(icevirt, call)(
            "nothing.nc", *(tmp_path / each for each in where), combine_options={"missing": "fill"}
        )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", EVERY)
def test_options_are_frozen_equal_by_value_and_pickle(options):
    made = options()
    assert made == options.of(None) == options.of({}) == pickle.loads(pickle.dumps(made))
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(made, declare(options)[0].name, "x")
    assert repr(made) == f"{options.__name__}()"


@pytest.mark.parametrize("options", EVERY)
def test_every_default_is_a_value_that_the_option_takes(options):
    for each in declare(options):
        assert each.check(each.default) == each.default
        assert each.option.doc.endswith(".")


def test_the_repr_is_the_call():
    made = icevirt.CombineOptions(missing="reserve", pad="x", spacing={"time": "6h"})
    assert repr(made) == "CombineOptions(missing='reserve', spacing={'time': '6h'}, pad=('x',))"
    assert eval(repr(made), {"CombineOptions": icevirt.CombineOptions}) == made


def test_what_the_caller_changes_later_changes_nothing():
    names, spacing = ["a"], {"time": "6h"}
    made = icevirt.CombineOptions(pad=names, spacing=spacing)
    names.append("b")
    spacing["x"] = 1
    assert (made.pad, made.spacing) == (("a",), {"time": "6h"})


def test_numbers_of_numpy_are_numbers():
    made = icevirt.CommitOptions(verify=np.int64(3))
    assert (made.verify, type(made.verify)) == (3, int)


def test_an_unknown_option_names_the_nearest():
    with pytest.raises(InvalidInputError, match=r"'mising'.*'missing'"):
        icevirt.CombineOptions.of({"mising": "reserve"})
    with pytest.raises(InvalidInputError, match="scan_options must be ScanOptions or a mapping"):
        icevirt.plan("a.nc", scan_options="skip")


def test_options_that_void_one_another_are_refused():
    for void in ({"duplicates": "newest"}, {"spacing": "6h"}):
        with pytest.raises(InvalidInputError, match="nested"):
            icevirt.CombineOptions(combine="nested", **void)


def test_errors_use_the_words_of_the_surface():
    with (
        spell_options(lambda _, each: each.flag),
        pytest.raises(InvalidInputError, match=r"^--on-mismatch='x'"),
    ):
        icevirt.CombineOptions(on_mismatch="x")
    with pytest.raises(InvalidInputError, match=r"^on_mismatch='x'"):
        icevirt.CombineOptions(on_mismatch="x")


UNKNOWN = {
    "an option of an object": (
        "build",
        {"message": "hello"},
        'Did you mean commit_options={"message": ...}? build takes',
    ),
    "a typing error": ("build", {"concat_dims": "t"}, "Did you mean concat_dim? build takes"),
    "a typing error in an option": (
        "plan",
        {"mising": "reserve"},
        'Did you mean combine_options={"missing": ...}? plan takes',
    ),
    "nothing near": ("build", {"colour": 1}, ". build takes sources, repo"),
}


@pytest.mark.parametrize(("call", "given", "said"), UNKNOWN.values(), ids=UNKNOWN)
def test_an_unknown_parameter_is_refused_with_what_was_meant(call, given, said):
    with pytest.raises(TypeError) as caught:
        getattr(icevirt, call)("a", **given)
    assert isinstance(caught.value, ArgumentError)
    assert said in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize("call", ["build", "plan", "scan_files", "scan_file", "verify"])
def test_signatures_stay_short(call):
    import inspect

    assert len(inspect.signature(getattr(icevirt, call)).parameters) <= 14
