"""The executor of tests: it runs tasks in this process, and lets a test act between its stages."""

from icevirt.execution.local_executors import InProcessExecutor


class StagedExecutor(InProcessExecutor):
    """Runs tasks in this process, divided as for two at a time.

    A stage is known by the function of its tasks, like ``run_write``. ``before`` and ``after`` hold
    what a test does around a stage, ``instead`` what it runs in the place of the function, and
    ``progress`` what each run was given to report to.
    """

    def __init__(self):
        super().__init__(parallelism=2)
        self.before, self.after, self.instead = {}, {}, {}
        self.progress = []

    def run(self, function, tasks, *, progress=None, storage=None):
        """Run the tasks, and what the test set for them."""
        self.progress.append(progress)
        self.before.get(function, _nothing)()
        work = self.instead.get(function, function)
        found = super().run(work, tasks, progress=progress, storage=storage)
        self.after.get(function, _nothing)()
        return found


def _nothing():
    """Do nothing."""


def at_most(times, deed):
    """Return what does the deed so many times, then no more; the deed is given how many are left."""
    left = [times]

    def do():
        if left[0]:
            left[0] -= 1
            deed(left[0])

    return do
