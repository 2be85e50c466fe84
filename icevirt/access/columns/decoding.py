"""Decode chunks of one array in the calling thread: bytes in, an array of the chunk's shape out.

The common codecs of HDF5 and NetCDF files release the interpreter's lock; others are zarr's own,
called chunk by chunk. `icevirt.wire.bounded` sets the limits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from math import prod
from typing import Any, NamedTuple

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.abc.codec import ArrayArrayCodec, Codec
from zarr.codecs import BytesCodec, TransposeCodec
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import default_buffer_prototype

from icevirt.access.columns.grid import is_countable
from icevirt.objects.answers import Body
from icevirt.wire.bounded import Unshuffle, decoding_step, limit_codecs
from icevirt.wire.panics import raise_panics


def reason_for_zarr(array: zarr.Array[Any]) -> str | None:
    """Say why chunks of an array have to go through zarr's pipeline; None if they have not."""
    codecs = codecs_of(array)
    if not any(isinstance(codec, BytesCodec) for codec in codecs):
        return "its chunks are shards, text, or encoded by a codec of its own"
    if not is_countable(array):
        return "its grid has larger numbers than 64 bits hold"
    if array.dtype.kind in "OT":
        return "its values are objects"
    if not array.async_array.config.read_missing_chunks:
        return "zarr is configured to refuse chunks that are missing"
    if not all(hasattr(codec, "_decode_sync") for codec in codecs):
        return "one of its codecs decodes in an event loop only"
    return None


def codecs_of(array: zarr.Array[Any]) -> tuple[Codec, ...]:
    """Return the codecs of an array, from its values to the bytes of a chunk."""
    codecs: tuple[Codec, ...] = array.metadata.codecs  # type: ignore[union-attr]  # of Zarr v3
    return codecs


class ChunkDecoder:
    """Decodes chunks of one array. Safe in threads."""

    def __init__(self, array: zarr.Array[Any]) -> None:
        self._array = array
        self._chains: dict[tuple[int, ...], _Chain] = {}

    @property
    def is_plain(self) -> bool:
        """Whether chunks are stored without filters and compression."""
        return len(codecs_of(self._array)) == 1

    @cached_property
    def signature(self) -> bytes:
        """All that decides what bytes are decoded to: codecs, chunks, type, and the libraries."""
        import numcodecs

        from icevirt.version import __version__

        metadata: Any = self._array.metadata
        names = ("codecs", "chunk_grid", "data_type")
        said = {name: metadata.to_dict().get(name) for name in names}
        versions = (__version__, zarr.__version__, numcodecs.__version__)
        return repr((sorted(said.items()), versions)).encode()

    def decode(self, raw: Body, shape: tuple[int, ...]) -> NDArray[Any]:
        """Return the values of a chunk, which the array declares to be of this shape.

        Raises:
            ValueError: It decodes to more or fewer bytes. Codecs raise errors of their own.
        """
        return self.decode_all([raw], shape)[0, ...]

    def decode_all(
        self, raws: Sequence[Body], shape: tuple[int, ...], joined: Body | None = None
    ) -> NDArray[Any]:
        """Return the values of several chunks of one shape, (n, *shape). Raises as `decode`.

        ``joined`` are the bytes of all chunks, where they lie one behind the other.
        """
        with raise_panics():
            return self._chain(shape).decode(raws, joined)

    def _chain(self, shape: tuple[int, ...]) -> _Chain:
        chain = self._chains.get(shape)
        if chain is None:
            chain = self._chains[shape] = _Chain.of(self._array, shape)
        return chain


class _Chain(NamedTuple):
    """The codecs of chunks of one shape, each with what it has to know of the chunk."""

    steps: Sequence[Callable[[Any], Any]]  # each undoes one codec, the outermost first
    dtype: np.dtype[Any]  # as they are stored
    stored: tuple[int, ...]  # shape
    turns: Sequence[Callable[[NDArray[Any]], NDArray[Any]]]  # from what is stored to the values

    @classmethod
    def of(cls, array: zarr.Array[Any], shape: tuple[int, ...]) -> _Chain:
        spec = ArraySpec(
            shape=shape,
            dtype=array.metadata.dtype,
            fill_value=array.metadata.fill_value,
            config=array.async_array.config,
            prototype=default_buffer_prototype(),
        )
        steps: list[Callable[[Any], Any]] = []
        turns: list[Callable[[NDArray[Any]], NDArray[Any]]] = []
        dtype, stored = spec.dtype.to_native_dtype(), shape
        for codec in limit_codecs(codecs_of(array)):
            ready: Any = codec.evolve_from_array_spec(spec)
            match ready:
                case BytesCodec(endian=endian):
                    stored, dtype = spec.shape, spec.dtype.to_native_dtype()
                    dtype = dtype if endian is None else dtype.newbyteorder(str(endian))  # type: ignore[arg-type]
                case ArrayArrayCodec():
                    turns.append(partial(_turn, ready, spec))
                case _:
                    steps.append(decoding_step(ready, spec))
            spec = ready.resolve_metadata(spec)
        return cls(steps=steps[::-1], dtype=dtype, stored=stored, turns=turns[::-1])

    def decode(self, raws: Sequence[Body], joined: Any) -> NDArray[Any]:
        """Return the values of chunks, (n, *shape)."""
        size = self.dtype.itemsize * prod(self.stored)
        steps, last = self.steps, self.steps[-1] if self.steps else None
        unshuffle = last if isinstance(last, Unshuffle) and size % last.size == 0 else None
        for step in steps if unshuffle is None else steps[:-1]:
            raws = [step(raw) for raw in raws]
        for raw in raws:
            if memoryview(raw).nbytes != size:
                raise ValueError(
                    f"it decodes to {memoryview(raw).nbytes:,} bytes, and its array declares a"
                    f" chunk of {size:,}"
                )
        if steps or joined is None:
            joined = raws[0] if len(raws) == 1 else b"".join(raws)
        if unshuffle is not None:
            joined = unshuffle.of_chunks(joined, len(raws))
        values = np.frombuffer(joined, self.dtype).reshape(len(raws), *self.stored)
        return np.stack([self._turn(each) for each in values]) if self.turns else values

    def _turn(self, values: NDArray[Any]) -> NDArray[Any]:
        for turn in self.turns:
            values = turn(values)
        return values


def _turn(codec: Any, spec: ArraySpec, values: NDArray[Any]) -> NDArray[Any]:
    """Decode with a codec from arrays to arrays."""
    if isinstance(codec, TransposeCodec):
        return values.transpose(np.argsort(codec.order))
    decoded: Any = codec._decode_sync(spec.prototype.nd_buffer.from_numpy_array(values), spec)  # noqa: SLF001
    turned: NDArray[Any] = decoded.as_numpy_array()
    return turned
