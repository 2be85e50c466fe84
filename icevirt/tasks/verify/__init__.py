"""Check references, and compare values with what the source files hold."""
