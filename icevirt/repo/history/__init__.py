"""Show the history of a repository: ancestry, diffs, the ops log, blame."""
