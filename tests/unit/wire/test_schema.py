"""The schema tables, held slot by slot against a schema in FlatBuffers' own language."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from icevirt.model.updates import UPDATE_KINDS
from icevirt.wire.flatbuffer import schema
from icevirt.wire.flatbuffer.builder import layout
from icevirt.wire.flatbuffer.schema import Scalar, Struct, Table, Text, Union, Vector

FBS = Path(__file__).parents[3] / "fixtures" / "icechunk" / "icechunk.fbs"
TEXT = re.sub(r"//.*", "", FBS.read_text())
SIZES = {"uint8": 1, "uint32": 4, "uint64": 8, "ObjectId12": 12}


def bodies(what):
    return dict(re.findall(rf"{what} (\w+) {{(.*?)}}", TEXT, re.DOTALL))


def told_fields(body):
    """Yield (name, type, required, default) as the schema file tells them."""
    for field in filter(str.strip, body.split(";")):
        match = re.fullmatch(r"(\w+):(\S+?)( = (\d+))?( \(required\))?", field.strip())
        assert match, field
        yield match[1], match[2], bool(match[5]), int(match[4] or 0)


def name_of(kind):
    match kind:
        case Scalar(name=name) | Struct(name=name) | Table(name=name):
            return name
        case Text():
            return "string"
        case Vector(of=of):
            return f"[{name_of(of)}]"
        case Union(members=members):
            found = [
                n
                for n, body in bodies("union").items()
                if names_in(body) == [m.name for m in members]
            ]
            return found[0]


def names_in(body):
    return re.findall(r"\w+", body)


def all_tables():
    roots = [schema.REPO, schema.SNAPSHOT, schema.MANIFEST, schema.TRANSACTION_LOG]
    found = {}

    def visit(kind):
        if isinstance(kind, Table) and kind.name not in found:
            found[kind.name] = kind
            for field in kind.fields:
                visit(field.kind)
        elif isinstance(kind, Vector):
            visit(kind.of)
        elif isinstance(kind, Union):
            for member in kind.members:
                visit(member)

    for root in roots:
        visit(root)
    return found


TABLES = all_tables()


def test_no_table_is_missing_and_none_is_invented():
    assert TABLES.keys() == bodies("table").keys()


@pytest.mark.parametrize("name", TABLES)
def test_every_field_has_its_slot_type_and_default(name):
    ours = [(f.name, name_of(f.kind), f.required, f.default) for f in TABLES[name].fields]
    output = [*told_fields(bodies("table")[name])]
    assert ours == output
    slots, slot = {}, 0
    for field, kind, _, _ in output:
        slot += kind in bodies("union")  # the type of a union has the slot before its value
        slots[field] = slot
        slot += 1
    assert TABLES[name].slots == slots


def structs_of(kind):
    if isinstance(kind, Struct):
        return {kind}
    return structs_of(kind.of) if isinstance(kind, Vector) else set()


STRUCTS = {s.name: s for t in TABLES.values() for f in t.fields for s in structs_of(f.kind)}


@pytest.mark.parametrize("name", STRUCTS)
def test_a_struct_has_the_size_and_alignment_of_its_fields(name):
    end, widest = 0, 1
    for field in filter(str.strip, bodies("struct")[name].split(";")):
        kind = field.split(":", 1)[1].strip()
        array = re.fullmatch(r"\[uint8:(\d+)\]", kind)
        size = int(array[1]) if array else SIZES[kind]
        align = 1 if array or kind == "ObjectId12" else size
        end += -end % align + size
        widest = max(widest, align)
    assert (STRUCTS[name].size, STRUCTS[name].align) == (end + -end % widest, widest)


def test_members_of_the_ops_log_are_the_models_classes_in_order():
    for table, kind in zip(schema.UPDATE_TYPE.members, UPDATE_KINDS, strict=True):
        assert table.name == kind.__name__ + "Update"
        stored = [f.name for f in table.fields if f.name != "is_set"]  # if not, its value is None
        assert stored == [f.name for f in fields(kind)]


@pytest.mark.parametrize("name", TABLES)
def test_fields_of_a_layout_are_aligned_and_do_not_meet(name):
    table = TABLES[name]
    shape = layout(table, frozenset(field.name for field in table.fields))
    taken = [set(range(4))]
    for field in table.fields:
        kind = field.kind
        size = kind.size if isinstance(kind, Scalar | Struct) else 4
        align = kind.align if isinstance(kind, Struct) else size
        at = shape.at[field.name]
        assert at % align == 0
        taken.append(set(range(at, at + size)))
        if isinstance(kind, Union):
            taken.append({shape.at[field.name + "_type"]})
    assert sum(map(len, taken)) == len(set().union(*taken))
    assert max(set().union(*taken)) < shape.size
