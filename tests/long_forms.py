"""Which cases of a test take turns: CI runs some, and every night (`just nightly`) all of them run."""

import os
from collections.abc import Iterable

IS_LONG = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"


def cases[Case](every: Iterable[Case], *few: Case) -> list[Case]:
    """Return every case at night, and else the few that are named."""
    known = list(every)
    assert all(case in known for case in few), "a case that is no more"
    return known if IS_LONG else list(few)
