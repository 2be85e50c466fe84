"""Decide whether new files only lengthen a dataset, from facts about its ends.

Pure: what the last build decided is a value, and so is the tip of the branch.
"""
