"""Scan repositories of Icechunk: references of references lead to the files themselves."""
