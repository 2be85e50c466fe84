"""Encode JSON values as the format does: FlexBuffers, MessagePack, YAML, reference files.

Columnar tables are in `flatbuffer`.
"""
