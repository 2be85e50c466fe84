"""Change a dataset: scan, plan, write, commit and report, in one transaction.

A dataset is what a build of some files makes of a group. `build`, `append`, `update` and what keeps
it small say what changes; `transaction` does it.
"""
