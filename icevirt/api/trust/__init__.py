"""Decide whose word counts: what a user named may be read, and what a repository says is data.

`made_here` is the state of this machine; `readable_places` says which files of a dataset are read.
"""
