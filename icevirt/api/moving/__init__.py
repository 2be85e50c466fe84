"""Carry what a repository records of its datasets to the new place of their files.

`renaming` says what a name becomes, `datasets` what each dataset's records become.
"""
