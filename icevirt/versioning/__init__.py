"""Decide how a repository changes: diffs, updates of the repo info, moves."""
