"""What gives icevirt's classes the manners of icechunk's; not public there."""
