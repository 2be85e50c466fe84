"""What the user changes about files before they are combined: names, attributes, corrections.

Never values.
"""
