"""A list of ECMWF's that differs from an earlier one in places and times is read as JSON has it."""

import json

import numpy as np
import pytest

from icevirt_scanners.grib import sidecars


@pytest.fixture(autouse=True)
def nothing_is_known(monkeypatch):
    monkeypatch.setattr(sidecars, "_shapes", {})


def rows(step=3, begin=100, date="20230101"):
    lengths = [50 + 3 * number + begin % 7 for number in range(20)]
    starts = begin + np.cumsum([0, *lengths[:-1]])
    return [
        {"date": date, "time": "1200", "step": str(step), "param": f"p{number}"}
        | {"_offset": int(start), "_length": length}
        for number, (start, length) in enumerate(zip(starts, lengths, strict=True))
    ]


def text(lines):
    return "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)


def read(raw, *, known=True):
    """Read a list, perhaps as if it were the first; return all that it says."""
    if not known:
        sidecars._shapes.clear()
    found = sidecars._of_ecmwf(raw.encode(), 0)
    columns = (found.begin, found.end, found.time, found.first, found.last)
    return [column.tolist() for column in columns], found.kind


ODD = {
    "the same": lambda made: made,
    "no times": lambda made: [{k: v for k, v in row.items() if k != "time"} for row in made],
    "no steps": lambda made: [{k: v for k, v in row.items() if k != "step"} for row in made],
    "another order of lines": lambda made: made[::-1],
    "numbers": lambda made: [row | {"date": int(row["date"]), "time": 1200} for row in made],
    "texts of offsets": lambda made: [row | {"_offset": str(row["_offset"])} for row in made],
    "a statistic": lambda made: [row | {"step": f"0-{row['step']}"} for row in made],
    "some months": lambda made: [row | {"step": "2-3-4"} for row in made],
}


@pytest.mark.parametrize("odd", ODD)
def test_a_list_of_a_known_text_is_read_as_if_it_were_the_first(odd):
    read(text(ODD[odd](rows())))
    assert len(sidecars._shapes) == 1
    for other in (rows(6), rows(240, 10**12), rows(0, 0, "20240229")):
        raw = text(ODD[odd](other))
        assert sidecars._read_shaped(raw.encode()) is not None or odd == "texts of offsets"
        assert read(raw) == read(raw, known=False)
        read(text(ODD[odd](rows())))


def nested(row):
    return {"more": {"date": row["date"]}} | row


UNLIKE = {
    "a value inside another": lambda made: [nested(row) for row in made],
    "a name that comes twice": lambda made: [
        json.dumps(row)[:-1] + f', "date" : "{row["date"]}"}}' for row in made
    ],
    "a name that is escaped": lambda made: [
        json.dumps(row)[:-1] + f', "d\\u0061te": "{row["date"]}"}}' for row in made
    ],
    "a step with a fraction": lambda made: [row | {"step": 1.5} for row in made],
    "a line with fewer names": lambda made: [
        *made[1:],
        {key: made[0][key] for key in made[0] if key != "step"},
    ],
}


@pytest.mark.parametrize("odd", UNLIKE)
def test_a_text_of_which_more_than_places_and_times_may_differ_is_not_remembered(odd):
    read(text(UNLIKE[odd](rows())))
    assert not sidecars._shapes


@pytest.mark.parametrize(
    "change",
    [
        lambda made: [*made[:5], made[5] | {"param": "other"}, *made[6:]],
        lambda made: [*made[:5], made[5] | {"step": "3.5"}, *made[6:]],
        lambda made: made[:-1],
        lambda made: [*made, made[-1] | {"_offset": 10**9}],
    ],
    ids=["another parameter", "a step of another form", "a line less", "a line more"],
)
def test_a_text_that_differs_in_more_is_read_line_by_line(change):
    read(text(rows()))
    raw = text(change(rows(6)))
    assert sidecars._read_shaped(raw.encode()) is None
    assert read(raw) == read(raw, known=False)


@pytest.mark.parametrize("at", ["date", "time"])
def test_a_date_that_is_none_is_an_error_in_a_known_text_too(at):
    read(text(rows()))
    raw = text([row | {at: "99999999"[: len(row[at])]} for row in rows(6)])
    for known in (True, False):
        with pytest.raises(sidecars.SidecarError, match="a date that is none"):
            read(raw, known=known)


def test_texts_are_remembered_up_to_a_size(monkeypatch):
    size = len(sidecars._cut_told(text(rows()).encode())[0])
    monkeypatch.setattr(sidecars, "_SHAPES", 2 * size + size // 2)
    for number in range(4):
        read(text([row | {"class": str(number)} for row in rows()]))
    assert len(sidecars._shapes) == 2
    monkeypatch.setattr(sidecars, "_SHAPES", size // 2)
    sidecars._shapes.clear()
    read(text(rows()))
    assert not sidecars._shapes
