"""Decide whose word counts: what a user named may be read, and what a repository says is data.

The state of this machine is `repo/made_here.py`; `readable_places` says which files are read.
"""
