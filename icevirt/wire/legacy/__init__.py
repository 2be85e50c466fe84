"""Read the format generations before V1: MessagePack files, and the first specification.

One module for each generation declares how it differs; `decode` walks these declarations.
"""
