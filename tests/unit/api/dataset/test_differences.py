"""What an update does follows from two listings alone."""

import pytest

from icevirt.api.dataset.differences import (
    find_superseded,
    refuse_many,
    rules_of,
    seconds_of,
    young,
)
from icevirt.api.dataset.files_held import compare
from icevirt.api.dataset.trial import UNTRIED, misfits
from icevirt.archive.reports.upkeep import UpdateReport
from icevirt.archive.sources import SourceFile
from icevirt.errors import CombineError, InvalidInputError, OverlapError

SECOND = 1_000_000_000


def file(name, *, size=1, at=5):
    return SourceFile(url=f"file:///a/{name}", size=size, last_modified=at * SECOND + 1)


def names(files):
    return [each.url.removeprefix("file:///a/") for each in files]


def found(listed, held, **options):
    known = {"gone": (), "is_young": lambda _: False} | options
    return compare(listed, {each.url: each for each in held}, **known)


def test_files_are_new_corrected_gone_or_as_they_were():
    held = [file("1"), file("2"), file("3"), file("4")]
    now = [file("1"), file("2", at=9), file("5"), file("3", size=2)]
    made = found(now, held, gone={"file:///a/4"})
    assert (names(made.added), names(made.corrected)) == (["5"], ["2", "3"])
    assert (names(made.vanished), made.known) == (["4"], 1)


def test_bad_files_are_tried_again_and_absent_ones_come_back():
    held = [file("bad"), file("absent"), file("gone")]
    absent = {"file:///a/absent", "file:///a/gone"}
    made = found(held[:2], held, bad={"file:///a/bad"}, absent=absent, gone={"file:///a/gone"})
    assert (names(made.corrected), names(made.vanished)) == (["bad", "absent"], [])


def test_young_files_wait_whether_they_are_new_or_changed():
    is_young = young(100 * SECOND, 60)
    held = [file("1"), file("2")]
    made = found([file("1", at=90), file("2", at=20), file("3", at=99)], held, is_young=is_young)
    assert (names(made.waiting), names(made.corrected)) == (["1", "3"], ["2"])
    assert is_young(file("ahead", at=150))
    assert not is_young(file("in another year", at=100 + 90_000))
    assert not young(100 * SECOND, 0)(file("now", at=100))


TIMES = {"60": 60, "60s": 60, "1.5m": 90, "2h": 7200, " 1 D ": 86_400}


@pytest.mark.parametrize(("text", "seconds"), TIMES.items())
def test_times_are_read_as_people_write_them(text, seconds):
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "-1s", "5 parsecs", "s"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(InvalidInputError, match="60s"):
        seconds_of(text)


MANY = [(1, 10, None), (3, 300, None), (5, 10, 5), (5, 10, "50%"), (0, 10, 0)]


@pytest.mark.parametrize(("gone", "held", "allowed"), MANY)
def test_some_files_may_be_gone(gone, held, allowed):
    refuse_many(gone, held, allowed)


@pytest.mark.parametrize(("gone", "held", "allowed"), [(2, 10, None), (1, 10, 0), (6, 10, "50%")])
def test_too_many_may_not(gone, held, allowed):
    with pytest.raises(InvalidInputError, match=f"max_vanished={gone}"):
        refuse_many(gone, held, allowed)


RULES = {
    "in one directory": (
        {"era5_*.nc": "era5t_*.nc"},
        ["x/era5_01.nc", "x/era5t_01.nc", "x/era5t_02.nc", "y/era5t_01.nc"],
        {"x/era5t_01.nc": "x/era5_01.nc"},
    ),
    "of two directories": (
        {"final/*_??.nc": "nrt/*_??.nc"},
        ["s3://b/final/a_01.nc", "s3://b/nrt/a_01.nc", "s3://b/nrt/a_02.nc"],
        {"s3://b/nrt/a_01.nc": "s3://b/final/a_01.nc"},
    ),
    "none": ({}, ["era5_01.nc", "era5t_01.nc"], {}),
}


@pytest.mark.parametrize(("rules", "urls", "expected"), RULES.values(), ids=RULES)
def test_provisional_files_go_where_their_final_ones_are(rules, urls, expected):
    assert find_superseded(urls, urls, rules_of(rules)) == expected
    assert find_superseded(urls, [], rules) == {}


@pytest.mark.parametrize("rule", [("a.nc", "b.nc"), ("a_*", "b_?"), ("x/*", "*"), ("*", "b")])
def test_a_rule_without_equal_wildcards_is_refused(rule):
    with pytest.raises(InvalidInputError, match="same wildcards"):
        rules_of(dict([rule]))


def refusing(odd, most=10**9, error=CombineError):
    tries = []

    def fits(some):
        tries.append(len(some))
        assert len(tries) <= most
        refused = [each for each in names(some) if each in odd]
        return error(f"{refused[0]} is odd") if refused else None

    return fits, tries


def test_files_that_do_not_fit_are_found_in_few_plans():
    fits, tries = refusing({"7", "80"})
    held = misfits([[file(str(number)) for number in range(100)]], fits)
    assert [(names([each]), each.error) for each in held] == [
        (["7"], "7 is odd"), (["80"], "80 is odd")
    ]  # fmt: skip
    assert len(tries) < 38


def test_what_many_misfits_leave_untried_is_held_back_too():
    fits, _ = refusing({str(number) for number in range(1000)}, most=201)
    held = misfits([[file(str(number))] for number in range(1000)], fits)
    assert len(held) == 1000
    assert {each.code for each in held} == {"combine", UNTRIED}


def test_misfits_of_one_kind_are_refused_together():
    """Whether there are ten of them or a thousand, beside others that fit."""
    fits, tries = refusing({str(number) for number in range(1000)})
    kinds = [[file(str(number)) for number in some] for some in (range(1000), range(1000, 1100))]
    held = misfits(kinds, fits)
    assert names(held) == [str(number) for number in range(1000)]
    assert len(tries) == 5
    assert [each.error for each in held[:2]] == [
        "0 is odd",
        "has the same variables as 0, which is refused: 0 is odd",
    ]


def test_files_whose_steps_are_there_say_nothing_of_others_of_their_kind():
    fits, _ = refusing({"0", "99"}, error=OverlapError)
    held = misfits([[file(str(number)) for number in range(100)]], fits)
    assert [(names([each]), each.error) for each in held] == [
        (["0"], "0 is odd"), (["99"], "99 is odd")
    ]  # fmt: skip


def test_a_dataset_that_is_refused_as_it_is_raises_that():
    with pytest.raises(CombineError, match="as it is"):
        misfits([[file("1")]], lambda _: CombineError("as it is"))


def test_a_report_says_in_one_line_what_differs():
    facts = dict.fromkeys(UpdateReport.__annotations__, 0) | {
        "files_added": 24, "files_corrected": 2, "files_vanished": 1, "held": (),
        "ends": {"time": ("2024-11-01", "2024-11-20"), "member": ("b", "b")},
    }  # fmt: skip
    base = {"repo": "", "branch": "main", "group": "/", "snapshot_id": "", "build_id": ""}
    counts = dict.fromkeys(("files_scanned", "files_reused", "manifests", "manifest_bytes"), 0)
    empty = dict.fromkeys(("bad_files", "arrays", "containers", "findings"), ())
    report = UpdateReport(already_built=False, **base, **counts, **empty, **facts)
    assert report.summary == (
        "+ 24 files · ~ 2 corrected · - 1 vanished · time 2024-11-01 → 2024-11-20"
    )
