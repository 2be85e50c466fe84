"""Repositories and sessions: commits, history, branches and tags, configuration."""
