"""icevirt's own scanners, found through the entry point group ``icevirt.scanners``.

The contract that they fulfill is `icevirt.scan`.
"""
