"""Commit changes: staging, manifests, rebase, and the one write that publishes them."""
