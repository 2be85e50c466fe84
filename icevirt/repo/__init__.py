"""Provide repositories and sessions: commits, history, branches, tags, configuration."""
