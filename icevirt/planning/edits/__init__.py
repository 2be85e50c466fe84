"""Apply the user's changes before files are combined: names, attributes, corrections.

Never values.
"""
