"""Describe a repository as a STAC collection, and its files as a table of items."""
