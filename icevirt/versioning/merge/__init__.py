"""Find conflicts between writers, and rebase or merge their changes."""
