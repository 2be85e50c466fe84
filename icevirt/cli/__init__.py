"""The command ``icevirt``: functions over the public API that return values.

Text is made in `icevirt.display`; nothing is computed here.
"""
