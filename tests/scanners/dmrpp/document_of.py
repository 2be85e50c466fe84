"""Write the DMR++ document of a small netCDF file, in the form of build_dmrpp 3.21."""

import base64
import zlib
from xml.sax.saxutils import quoteattr

import h5py
import numpy as np

SPACES = (
    'xmlns="http://xml.opendap.org/ns/DAP/4.0#"'
    ' xmlns:dmrpp="http://xml.opendap.org/dap/dmrpp/1.0.0#"'
)
_TYPES = {"f4": "Float32", "f8": "Float64", "i1": "Int8", "u1": "UInt8", "i2": "Int16"}
_TYPES |= {"u2": "UInt16", "i4": "Int32", "u4": "UInt32", "i8": "Int64", "u8": "UInt64"}
_FILTERS = {1: "deflate", 2: "shuffle", 3: "fletcher32"}
_HIDDEN = ("DIMENSION_LIST", "REFERENCE_LIST", "CLASS", "NAME", "_Netcdf4Dimid", "_NCProperties")


def write_document(path, *, added=None):
    """Write the document beside the file, and return its path."""
    with h5py.File(path) as file:
        parts = [*_dimensions(file), *_members(file), *_added(added or {}), *_attributes(file)]
    root = f"<Dataset {SPACES} name={quoteattr(path.name)} dmrpp:version='3.21'>"
    document = f"{root}{''.join(parts)}</Dataset>"
    target = path.with_name(f"{path.name}.dmrpp")
    target.write_text(f'<?xml version="1.0" encoding="UTF-8"?>{document}')
    return target


def _dimensions(group):
    for name, each in group.items():
        if isinstance(each, h5py.Dataset) and each.is_scale:
            yield f'<Dimension name="{name}" size="{each.shape[0]}"/>'


def _members(group):
    for name, each in group.items():
        if isinstance(each, h5py.Group):
            yield f'<Group name="{name}">'
            yield from (*_dimensions(each), *_members(each), *_attributes(each))
            yield "</Group>"
        elif b"but not a netCDF variable" not in np.bytes_(each.attrs.get("NAME", "")):
            yield from _variable(name, each)


def _variable(name, found):
    kind, of_enum = _TYPES.get(found.dtype.str[1:], "String"), ""
    if members := h5py.check_enum_dtype(found.dtype):
        pairs = "".join(f'<EnumConst name="{n}" value="{v}"/>' for n, v in members.items())
        yield f'<Enumeration name="{name}_t" basetype="{kind}">{pairs}</Enumeration>'
        kind, of_enum = "Enum", f' enum="/{name}_t"'
    yield f'<{kind} name="{name}"{of_enum}>'
    scales = [found] if found.is_scale else [each[0] for each in found.dims if len(each)]
    yield from (f'<Dim name="{scale.name}"/>' for scale in scales)
    yield from _attributes(found)
    yield from _places(found)
    yield f"</{kind}>"


def _attributes(node):
    for name, value in node.attrs.items():
        if name in _HIDDEN:
            continue
        text = isinstance(value, str | bytes)
        values = [value] if text else np.atleast_1d(value)
        kind = "String" if text else _TYPES.get(values.dtype.str[1:], "String")
        inner = "".join(f"<Value>{_spell(each)}</Value>" for each in values)
        yield f'<Attribute name="{name}" type="{kind}">{inner}</Attribute>'


def _spell(value):
    if isinstance(value, bytes):
        return value.decode()
    return value if isinstance(value, str) else repr(value.item())


def _places(found):
    order = "BE" if found.dtype.byteorder == ">" else "LE"
    kind = found.dtype.kind
    spelled = f"{found.fillvalue:.6g}" if kind == "f" else str(found.fillvalue)
    fill = f' fillValue="{spelled}"' if kind in "iuf" else ""
    names = " ".join(_FILTERS[code] for code in _codes(found))
    kind = f' compressionType="{names}" deflateLevel="4"' if names else ""
    yield f'<dmrpp:chunks byteOrder="{order}"{fill}{kind}>'
    if found.chunks is None:
        if (offset := found.id.get_offset()) is not None:
            yield f'<dmrpp:chunk offset="{offset}" nBytes="{found.id.get_storage_size()}"/>'
    else:
        edges = " ".join(map(str, found.chunks))
        yield f"<dmrpp:chunkDimensionSizes>{edges}</dmrpp:chunkDimensionSizes>"
        chunks = []
        found.id.chunk_iter(chunks.append)
        for chunk in chunks:
            place = ",".join(map(str, chunk.chunk_offset))
            yield (
                f'<dmrpp:chunk offset="{chunk.byte_offset}" nBytes="{chunk.size}"'
                f' chunkPositionInArray="[{place}]"/>'
            )
    yield "</dmrpp:chunks>"


def _codes(found):
    plist = found.id.get_create_plist()
    return [plist.get_filter(number)[0] for number in range(plist.get_nfilters())]


def _added(variables):
    """Yield variables that the file lacks, as archives add coordinates of grids."""
    for name, (dims, values) in variables.items():
        kind = _TYPES[values.dtype.str[1:]]
        text = base64.b64encode(zlib.compress(values.tobytes())).decode()
        axes = "".join(f'<Dim name="{each}"/>' for each in dims)
        places = f"<dmrpp:missingdata>{text}</dmrpp:missingdata>"
        yield f'<{kind} name="{name}">{axes}{places}</{kind}>'
