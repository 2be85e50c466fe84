"""Keep a repository small, and check it."""
