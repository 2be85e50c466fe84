"""Repositories that live: files come and change, archives move, versions go back, forth and away.

The long form (`just living-histories`) makes many more programs.
"""

import os

import pytest

from living.living_repository import LivingRepository
from long_forms import cases

pytestmark = [pytest.mark.usefixtures("in_process"), pytest.mark.ci]

SEEDS = int(os.environ.get("ICEVIRT_HISTORIES", "3"))
STEPS = int(os.environ.get("ICEVIRT_HISTORY_STEPS", "12"))

PROGRAMS = {
    "a new file after undo": "relocate undo new update",
    "an append after undo": "relocate undo append",
    "a touched file after undo": "relocate undo touched update update new update",
    "a corrected file after undo": "relocate undo corrected update",
    "after undo and redo": "relocate undo touched update undo redo touched update",
    "there and back": "relocate back new update touched update",
    "there, back, and undo of both": "relocate back undo touched update undo corrected update",
    "moved twice, undone twice": "relocate relocate undo undo touched update",
    "a branch at the old place": "branch relocate new:b1 update:b1 touched:b1 update:b1",
    "both places in turn": "branch relocate touched update touched:b1 update:b1 append append:b1",
    "a branch that moves, too": "branch relocate relocate:b1 touched:b1 update:b1 touched update",
    "versions before are gone": "relocate retain undo touched update retain new update",
    "only the new place is left": "relocate new update retain touched update corrected update",
    "a damaged file moves": "damaged update relocate update mended update undo update",
    "a stored variable grows": "materialize append new update late update corrected update",
    "stored, and the build is gone": "materialize retain append others_commit retain new update",
    "stored behind the build": "append others_commit retain materialize new update retain update",
    "stored, and moved": "materialize relocate new update undo undo append relocate update",
    "all is stored, and moved": "materialize materialize materialize relocate new update touched update",
    "all is stored, moved, anew": "materialize materialize materialize relocate make_anew back make_anew",
    "all is stored, moved, undone": "materialize materialize materialize relocate undo relocate update",
    "stored on one branch": "branch materialize append:b1 new update corrected:b1 update:b1 retain",
    "stored, undone, stored": "materialize undo new update materialize new update redo update",
    "a twin grows": "twin append late update corrected update withdraw new update",
    "a twin beside a stored one": "twin materialize retain others_commit new update relocate undo make_anew",
    "twins on branches": "branch twin append:b1 twin:b1 new update corrected:b1 update:b1 retain",
    "beside a withdrawn file": "withdraw touched update withdraw corrected update",
    "others commit between": "others_commit relocate others_commit undo undo touched update",
}


HISTORIES = [(program, kind) for program in PROGRAMS for kind in ("prefix", "named container")]
IN_TURNS = [each for at, each in enumerate(HISTORIES) if at % 4 in {0, 3}]  # each program once


@pytest.mark.parametrize(("program", "kind"), cases(HISTORIES, *IN_TURNS))
def test_a_catalog_follows_the_history(program, kind, tmp_path, monkeypatch):
    living = LivingRepository(tmp_path, 1, monkeypatch, is_named=kind == "named container")
    living.run(*PROGRAMS[program].split())


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_branch_is_what_its_files_were_whatever_happens(seed, tmp_path, monkeypatch):
    living = LivingRepository(
        tmp_path, seed, monkeypatch, kills=0.25, ages=bool(seed % 2), is_named=seed % 4 > 1
    )
    for _ in range(STEPS):
        living.step()
    for branch in living.branches:
        living.run(f"update:{branch}")
