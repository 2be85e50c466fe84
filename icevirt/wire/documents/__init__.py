"""JSON values in the encodings of the format: FlexBuffers, MessagePack, YAML, reference files."""
