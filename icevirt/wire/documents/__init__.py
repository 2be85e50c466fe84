"""JSON values in the encodings of the format: FlexBuffers, MessagePack, YAML, reference files.

Columnar tables are in `flatbuffer`.
"""
