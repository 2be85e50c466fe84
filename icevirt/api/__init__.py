"""What `import icevirt` offers beside Repository and Session: build, scan_file, info."""
