"""A fix is shown with all that it takes, or not at all."""

from icevirt.api.dataset.planning import UntriedError, try_fixes
from icevirt.errors import CombineError, DataLoss
from icevirt.planning.losses import Measured
from icevirt.planning.remedies import fix, scan_fix

WORKS = Measured(loss=DataLoss(), stored=0)


def of(*fixes):
    """Return a refusal with fixes."""
    return CombineError("files differ", fixes=fixes)


def refusing(*steps):
    """Return what refuses arguments until they hold each of some options, with a fix for the next."""

    def refusal(arguments):
        for name, fixes in steps:
            if not any(name in held for held in arguments.values()):
                return CombineError(f"{name} is needed", fixes=fixes)
        return WORKS

    return refusal


PAD = fix("ends read as missing", pad=["z"])
RESERVE = fix("steps read as missing", missing="reserve")
DROP = scan_fix("v is left out", drop_variables=["/v"])


def test_a_fix_that_is_enough_stays_as_it_is():
    assert try_fixes(of(PAD), lambda _: WORKS) == ([PAD], "")


def test_what_the_next_refusal_proposes_is_added():
    (found,), _ = try_fixes(of(PAD), refusing(("missing", [RESERVE])))
    assert found.arguments == {"combine_options": {"pad": ["z"], "missing": "reserve"}}
    assert found.flags == ("--pad", "z", "--missing", "reserve")
    assert found.price == "ends read as missing; steps read as missing"


def test_the_second_way_counts_where_the_first_leads_nowhere():
    dead = fix("nothing", spacing="1D")
    steps = [("missing", [dead, RESERVE])]
    (found,), _ = try_fixes(of(PAD), refusing(*steps))
    assert "spacing" not in found.arguments["combine_options"]


def test_a_fix_that_leads_nowhere_is_not_shown_and_it_is_said_why():
    found, why = try_fixes(of(PAD, DROP), refusing(("drop_variables", [])))
    assert found == [DROP]
    assert why == 'With combine_options={"pad": ["z"]}: drop_variables is needed.'
    assert why.in_flags("") == "With --pad z: drop_variables is needed."


def test_a_fix_that_needs_another_one_which_is_enough_alone_is_not_shown():
    given = fix("v gets the dimension", data_vars=["v"])
    found, _ = try_fixes(of(PAD, given), refusing(("pad", [PAD])))
    assert found == [PAD]


def test_what_leads_to_the_same_refusal_is_no_fix():
    found, why = try_fixes(of(PAD), lambda _: of(RESERVE))
    assert (found, why) == ([], "")


def test_a_fix_that_cannot_be_tried_is_shown():
    def refusal(_):
        raise UntriedError

    assert try_fixes(of(PAD), refusal) == ([PAD], "")


def test_a_command_to_run_before_is_not_tried():
    install = scan_fix("installs a decoder", first="pip install hdf5plugin")
    assert try_fixes(of(install), refusing(("pad", []))) == ([install], "")


def test_refusals_without_end_stop():
    count = 0

    def refusal(_):
        nonlocal count
        count += 1
        return CombineError(
            f"{count} more", fixes=[fix("more", attrs={f"v{count}": {"units": "m"}})]
        )

    found, _ = try_fixes(of(PAD), refusal)
    assert len(found) == 1
    assert count < 30


def test_what_is_left_untried_is_not_shown_beside_what_works():
    many = [fix("a name", pad=[f"d{number}"]) for number in range(40)]
    found, _ = try_fixes(of(*many), lambda _: WORKS)
    assert found
    assert len(found) < len(many)
    assert all(each.loss is not None for each in found)


def test_another_dimension_may_solve_the_same_refusal_together_with_its_own_fix():
    along = fix("files lie along y, too", concat_dim=["x", "y"])

    def refusal(arguments):
        is_solved = {"concat_dim", "combine_options"} <= arguments.keys()
        return WORKS if is_solved else of(RESERVE)

    (found,), _ = try_fixes(of(along), refusal)
    assert found.arguments == {"concat_dim": ["x", "y"], "combine_options": {"missing": "reserve"}}
