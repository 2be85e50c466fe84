"""A process that builds from a catalog alone, and is killed on the way or meets another one."""

import os
import signal
import time
from pathlib import Path

import icevirt
from icevirt.api.dataset import planning, scanning, transaction
from icevirt.tasks import forkserver, scan


def _die(*_, **options):
    os.kill(os.getpid(), signal.SIGKILL)


def _after(function):
    return lambda *given: (function(*given), _die())


def take(catalog, repo, moment, options):
    """Build; at the moment that is named something happens."""
    take_facts = scanning._take_facts

    def met(*given):
        Path(f"{repo}.ready").touch()
        while len(list(Path(repo).parent.glob("*.ready"))) < 2:
            time.sleep(0.01)
        take_facts(*given)

    forkserver._IS_WORKER[0] = False
    if moment == "first facts":
        scan.write_facts = _after(scan.write_facts)
    if moment == "plan":
        planning.combine_eras = _die
    if moment == "commit":
        transaction.commit = _die
    if moment == "meeting":
        scanning._take_facts = met
    icevirt.build(None, repo, catalog=catalog, executor="in-process", **options)
