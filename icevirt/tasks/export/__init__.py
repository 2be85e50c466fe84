"""What an export takes from manifests, on executors."""
