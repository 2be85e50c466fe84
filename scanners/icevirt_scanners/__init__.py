"""icevirt's own scanners; they plug in like anybody else's, by the group ``icevirt.scanners``."""
