"""Provide the command ``icevirt``: thin functions over the public API.

Text is made in `icevirt.display`; nothing is computed here.
"""
