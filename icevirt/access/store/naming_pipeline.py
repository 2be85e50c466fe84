"""Let zarr's pipeline of codecs name the chunk that it cannot decode, and lose no value.

Threads that write parts of one chunk of a session take turns: each reads what the others wrote.

Codecs raise errors of their own, which say nothing of the chunk. zarr asks the class of pipelines
that is configured for one that fits a store: the arrays of our stores get this one, all others
zarr's own. A class that a program chose itself stays.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import fields
from typing import Any
from weakref import WeakValueDictionary

import zarr
from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.core.buffer import default_buffer_prototype
from zarr.core.codec_pipeline import BatchedCodecPipeline
from zarr.core.metadata import ArrayV3Metadata
from zarr.registry import register_pipeline
from zarr.storage import WrapperStore

from icevirt.access.store import keys
from icevirt.access.store.chunk_errors import decoding_error, is_of_decoding
from icevirt.errors import IcevirtError
from icevirt.wire.bounded import check_codecs
from icevirt.wire.panics import raise_panics

_ZARRS = f"{BatchedCodecPipeline.__module__}.{BatchedCodecPipeline.__qualname__}"


_PAUSES = 0.0005, 0.02  # the first and the longest, in seconds, of those who wait for a turn

_turns: WeakValueDictionary[tuple[int, str], threading.Lock] = WeakValueDictionary()
"""Locks of the chunks that threads write or wait to write, by session and path."""
_guard = threading.Lock()


def _forget_turns() -> None:
    """Begin anew in a child process, which has none of the threads that hold turns."""
    global _guard  # noqa: PLW0603 - a thread that the child does not have may hold it
    _guard = threading.Lock()
    _turns.clear()


os.register_at_fork(after_in_child=_forget_turns)


@asynccontextmanager
async def _in_turn(batch: list[Any]) -> AsyncIterator[None]:
    """Hold the locks of some chunks, which no other writer of the session may change meanwhile.

    The writer that holds a lock may be in another event loop, so waiting means trying again.
    """
    session = getattr(_innermost(batch[0][0].store), "session", None)
    with ExitStack() as stack:
        for path in sorted({place.path for place, *_ in batch} if session is not None else ()):
            with _guard:
                lock = _turns.setdefault((id(session), path), threading.Lock())
            pause, longest = _PAUSES
            while not lock.acquire(blocking=False):
                await asyncio.sleep(pause)
                pause = min(2 * pause, longest)
            stack.callback(lock.release)
        yield


def _innermost(store: Any) -> Any:
    """Return the store that zarr's wrappers, which log or cache, are around."""
    while isinstance(store, WrapperStore):
        store = store._store  # noqa: SLF001 - there is no other way in
    return store


class NamingPipeline(BatchedCodecPipeline):
    """zarr's pipeline, whose errors name what could not be decoded."""

    async def read_batch(self, batch_info: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
        """Read and decode some chunks."""
        batch = list(batch_info)
        try:
            with raise_panics():
                return await super().read_batch(batch, *args, **kwargs)
        except Exception as error:
            if len(batch) > 1 and is_of_decoding(error):
                for one in batch:  # so that the error is that of a chunk
                    await self.read_batch([one], *args, **kwargs)
            _raise_named(error, batch)
            if isinstance(error, IcevirtError):  # what zarr awaits to read a chunk tells nobody
                raise error.with_traceback(None) from error.__cause__
            raise

    async def write_batch(self, batch_info: Iterable[Any], *args: Any, **kwargs: Any) -> None:
        """Write some chunks; those that are written in part are decoded before."""
        batch = list(batch_info)
        try:
            async with _in_turn(batch):
                with raise_panics():
                    await super().write_batch(batch, *args, **kwargs)
        except Exception as error:
            _raise_named(error, batch)
            raise


def _raise_named(error: Exception, batch: list[Any]) -> None:
    """Raise an error of decoding as one that names the chunk, if there is but one."""
    place = batch[0][0]
    key = keys.parse(place.path)
    if len(batch) == 1 and isinstance(key, keys.ChunkKey) and is_of_decoding(error):
        raise decoding_error(_innermost(place.store), key.path, error, key.chunk) from error


def name_chunks(array: zarr.Array[Any]) -> None:
    """Let an array have this pipeline in the place of zarr's own."""
    made = array.async_array.codec_pipeline
    if type(made) is BatchedCodecPipeline:
        parts = {field.name: getattr(made, field.name) for field in fields(made)}
        object.__setattr__(array.async_array, "codec_pipeline", NamingPipeline(**parts))


def take_turns(array: zarr.Array[Any]) -> None:
    """Let an array have this pipeline, whatever is configured: it is written by threads."""
    inner = array.async_array
    if not isinstance(inner.codec_pipeline, NamingPipeline):
        object.__setattr__(inner, "codec_pipeline", pipeline_of(inner.metadata))


def pipeline_of(metadata: ArrayV3Metadata) -> NamingPipeline:
    """Return the pipeline of an array."""
    shape = getattr(metadata.chunk_grid, "chunk_shape", (1,) * len(metadata.shape))
    spec = ArraySpec(
        shape=shape,
        dtype=metadata.data_type,
        fill_value=metadata.fill_value,
        config=ArrayConfig.from_dict({}),
        prototype=default_buffer_prototype(),
    )
    return NamingPipeline.from_codecs(check_codecs(metadata.codecs)).evolve_from_array_spec(spec)


class StorePipelines(BatchedCodecPipeline):
    """Chooses the pipeline of an array by its store, which zarr asks for."""

    @classmethod
    def from_array_metadata_and_store(cls, array_metadata: Any, store: Any) -> Any:
        """Return a pipeline for arrays of our stores. Raises ``NotImplementedError``."""
        is_ours = getattr(_innermost(store), "names_chunks", False)
        if is_ours and isinstance(array_metadata, ArrayV3Metadata):
            return pipeline_of(array_metadata)
        raise NotImplementedError

    @classmethod
    def from_codecs(cls, codecs: Iterable[Any], **kwargs: Any) -> Any:
        """Return zarr's own pipeline."""
        return BatchedCodecPipeline.from_codecs(codecs, **kwargs)


register_pipeline(StorePipelines)
_OURS = f"{StorePipelines.__module__}.{StorePipelines.__qualname__}"


def name_chunks_in_errors() -> None:
    """Let arrays of our stores, which are opened from now on, have this pipeline.

    Stores ask for it whenever metadata is read: `zarr.config.reset` forgets it.
    """
    if zarr.config.get("codec_pipeline.path") == _ZARRS:
        zarr.config.set({"codec_pipeline.path": _OURS})
