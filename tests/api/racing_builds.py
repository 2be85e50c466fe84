"""Two processes that build into the same repositories, round after round."""

import time
from pathlib import Path

import icevirt
from icevirt import errors

ROUNDS = (  # groups of the two, mode, branches
    ("/g", "/g", "w-", "main", "main"),
    ("/g", "/g", "w", "main", "main"),
    ("/a", "/b", "w-", "main", "main"),
    ("/", "/b", "w", "main", "main"),
    ("/", "/", "w-", "main", "dev"),
)


def race(racer, folder):
    """Build once in each round, as soon as the other one is there; return snapshots or refusals."""
    return [_build(racer, folder, number, *each) for number, each in enumerate(ROUNDS)]


def _build(racer, folder, number, one, other, mode, *branches):
    Path(folder, f"{number}.{racer}").touch()
    while not Path(folder, f"{number}.{1 - racer}").exists():
        time.sleep(0.001)
    try:
        return icevirt.build(
            [f"{folder}/racer{racer}/day{day}.nc" for day in (1, 2)],
            f"{folder}/repo{number}",
            concat_dim="time",
            group=(one, other)[racer],
            mode=mode,
            commit_options={"branch": branches[racer]},
            executor="in-process",
        ).snapshot_id
    except (errors.ConflictError, errors.AlreadyExistsError, errors.PlanChangedError) as error:
        return f"refused: {error.code}"
