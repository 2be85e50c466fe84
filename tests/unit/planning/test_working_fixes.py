"""A refusal proposes only what works, and joins what only works together."""

import pytest

from icevirt.archive.plan import BuildPlan
from icevirt.errors import CombineError
from icevirt.planning.combine.options import CombineSpec
from icevirt.planning.eras.working_fixes import keep_working_fixes
from icevirt.planning.remedies import fix, scan_fix
from unit.planning.scanned_facts import data, facts_of, step

RESERVE = fix("reserved", missing="reserve")
NATIVE = fix("stored", on_mismatch="native")
DROP = scan_fix("gone", drop_variables=["/u"])
VALUE = data("time", [1.0])
UNKNOWN = fix("?", data_vars=["u"])


def refusal(what, *fixes):
    return CombineError(what, fixes=fixes, do="Or not.")


def planned(facts):
    """Return a plan that holds nothing of some files."""
    return BuildPlan(
        build_id="",
        group="/",
        concat_dim=(),
        files=facts.files,
        groups={},
        arrays=(),
        containers=(),
        split_rules=(),
        notes=(),
    )


def kept(error, *rules):
    """Return what is left of the fixes; rules say in turn what is refused of options."""

    def plan(facts, spec):
        there = facts.arrays.path.values
        for is_wrong, later in rules:
            if is_wrong(spec.options, there):
                raise later
        return planned(facts)

    keep_working_fixes(
        error,
        facts_of(*(step(name, time, u=VALUE, w=VALUE) for name, time in (("a", 1.0), ("b", 2.0)))),
        CombineSpec(build_id=""),
        plan,
    )
    return error.fixes


def test_what_works_or_cannot_be_tried_stays():
    is_refused = (lambda options, _: options.missing == "refuse", refusal("missing"))
    error = refusal("missing", NATIVE, RESERVE, UNKNOWN)
    assert {each.price for each in kept(error, is_refused)} == {"reserved", "?"}
    assert error.do == "Or not."


def test_fixes_of_one_difference_after_another_are_one_fix():
    missing = (lambda options, _: options.missing == "refuse", refusal("missing", RESERVE))
    unlike = (lambda options, _: options.on_mismatch == "refuse", refusal("unlike", NATIVE))
    (found,) = kept(refusal("unlike", NATIVE), unlike, missing)
    assert found.flags == (*NATIVE.flags, *RESERVE.flags)
    assert found.price == "stored; reserved"
    assert found.arguments == {"combine_options": {"on_mismatch": "native", "missing": "reserve"}}


def test_variables_that_a_fix_drops_are_not_there_any_more():
    there = (lambda _, paths: "/time" in paths, refusal("u is odd"))
    assert kept(refusal("u is odd", DROP), there) == ()
    gone = (lambda _, paths: "/u" in paths, refusal("u is odd"))
    assert kept(refusal("u is odd", DROP), gone) == (DROP,)


@pytest.mark.parametrize("names", [["/time"], ["/t", "/u", "/w"]], ids=["a coordinate", "all data"])
def test_no_fix_drops_the_coordinate_of_a_dimension_or_all_data(names):
    drop = scan_fix("gone", drop_variables=names)
    odd = (lambda _, paths: names[0] in paths, refusal("odd"))
    assert kept(refusal("odd", drop), odd) == ()


def test_what_is_left_is_reported_where_nothing_works():
    hopeless = (lambda *_: True, refusal("they overlap"))
    error = refusal("missing", RESERVE)
    assert kept(error, hopeless) == ()
    assert error.do == "Or not. This is not all that differs: they overlap."


@pytest.mark.parametrize("fixes", [(), (RESERVE,)], ids=["no fix", "none that works"])
def test_a_refusal_without_a_way_out_says_what_remains(fixes):
    error = CombineError("they differ", fixes=fixes)
    assert kept(error, (lambda *_: True, refusal("they differ"))) == ()
    assert error.do.startswith("Repair the files that differ")


def test_drops_of_many_variables_are_joined():
    rules = [
        (
            lambda _, paths, name=name: name in paths,
            refusal(name, scan_fix(name, drop_variables=[name])),
        )
        for name in ("/u", "/w")
    ]
    error = refusal("/u", scan_fix("/u", drop_variables=["/u"]))
    fixes = kept(error, *rules)
    assert fixes, error.do
    assert set(fixes[0].arguments["scan_options"]["drop_variables"]) == {"/u", "/w"}


def test_an_option_may_have_to_go():
    without = CombineSpec(build_id="", spacing={"time": "1D"})
    error = refusal("not regular", fix("fits", spacing={"time": "6h"}))

    def plan(facts, spec):
        if spec.spacing != {"time": "6h"}:
            raise refusal("not regular")
        return planned(facts)

    keep_working_fixes(error, facts_of(step("a", 1.0)), without, plan)
    assert [each.price for each in error.fixes] == ["fits"]


@pytest.mark.parametrize("count", [1, 60])
def test_trials_end(count):
    """Each trial leads to other differences, of which none has an end."""
    tried = []

    def plan(_, spec):
        tried.append(spec)
        raise refusal(str(len(tried)), *[RESERVE] * count)

    error = refusal("0", *[RESERVE] * count)
    keep_working_fixes(error, facts_of(step("a", 1.0)), CombineSpec(build_id=""), plan)
    assert len(tried) <= 24
