"""The protobuf messages of Lance's manifests and transactions, as far as they are read or written here.

Each class describes a message: the names, numbers and types of its fields. The library `protobuf` reads and writes the
messages. Fields that are not described stay in a message when it is written again. Parts that are compared or copied
as a whole, such as the fragments of a manifest, are described as bytes, and are parsed when they are needed.
"""

from collections.abc import MutableSequence
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any, Self, get_args, get_type_hints

from anabranch.errors import DamagedFileError


class Message:
    """A message. Its class gives the types of the fields; an instance is of a class that `protobuf` generates."""

    def __new__(cls, **values: Any) -> Self:
        made: Self = (_CLASSES.get(cls) or _generated(cls))(**values)
        return made

    @classmethod
    def parse(cls, data: bytes, what: str) -> Self:
        """Read a message; `what` names it in the error."""
        try:
            found: Self = (_CLASSES.get(cls) or _generated(cls)).FromString(data)
        except _decode_error() as err:
            raise damaged(what, "it is not a message of Lance, or holds a text that is not UTF-8") from err
        return found

    if TYPE_CHECKING:

        def SerializeToString(self) -> bytes: ...  # noqa: N802 - names of `protobuf`
        def CopyFrom(self, other: Self) -> None: ...  # noqa: N802
        def HasField(self, name: str) -> bool: ...  # noqa: N802
        def ClearField(self, name: str) -> None: ...  # noqa: N802


def damaged(what: str, problem: str) -> DamagedFileError:
    return DamagedFileError(
        f"{what} is damaged: {problem}", hint="run `Dataset.doctor()` on it, or restore it from a backup"
    )


def find_unknown_fields(message: Message) -> set[int]:
    """Return the numbers of the fields that are not described here."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    return {field.field_number for field in UnknownFieldSet(message)}


@dataclass(frozen=True, slots=True)
class _Field:
    number: int
    signed: bool
    optional: bool


def _field(number: int, *, signed: bool = False, optional: bool = False) -> Any:
    """Describe a field. Of an `optional` one, zero and an absent value differ; others are not written if they are 0."""
    return _Field(number, signed, optional)


class Timestamp(Message):
    seconds: int = _field(1, signed=True)
    nanos: int = _field(2, signed=True)


class BasePath(Message):
    id: int = _field(1)
    name: str = _field(2, optional=True)
    is_dataset_root: bool = _field(3)
    path: str = _field(4)


class Manifest(Message):
    """`fields` are of the type Field, and `fragments` of the type Fragment."""

    fields: MutableSequence[bytes] = _field(1)
    fragments: MutableSequence[bytes] = _field(2)
    version: int = _field(3)
    # Sections are found by their positions in the file.
    index_section: int = _field(6, optional=True)
    timestamp: Timestamp = _field(7)
    reader_feature_flags: int = _field(9)
    writer_feature_flags: int = _field(10)
    max_fragment_id: int = _field(11, optional=True)
    transaction_file: str = _field(12)
    next_row_id: int = _field(14)
    base_paths: MutableSequence[BasePath] = _field(18)
    branch: str = _field(20, optional=True)
    transaction_section: int = _field(23, optional=True)


class FragmentId(Message):
    """A fragment, of which only the id is read."""

    id: int = _field(1)


class FragmentIds(Message):
    """A manifest, of which only the ids of fragments are read: they are needed at every commit."""

    fragments: MutableSequence[FragmentId] = _field(2)


class FieldMetadata(Message):
    key: str = _field(1)
    value: bytes = _field(2)


class Field(Message):
    """A field of the schema. The parent of a column is -1."""

    name: str = _field(2)
    id: int = _field(3, signed=True)
    parent_id: int = _field(4, signed=True)
    logical_type: str = _field(5)
    nullable: bool = _field(6)
    metadata: MutableSequence[FieldMetadata] = _field(10)


class DataFile(Message):
    path: str = _field(1)
    fields: MutableSequence[int] = _field(2, signed=True)
    column_indices: MutableSequence[int] = _field(3, signed=True)
    file_major_version: int = _field(4)
    file_minor_version: int = _field(5)
    file_size_bytes: int = _field(6)
    base_id: int = _field(7, optional=True)


class DeletionFile(Message):
    """Its type is 0 for a list of offsets in an Arrow file, and 1 for a bitmap."""

    file_type: int = _field(1)
    read_version: int = _field(2)
    id: int = _field(3)
    num_deleted_rows: int = _field(4)
    base_id: int = _field(7, optional=True)


class Overlay(Message):
    data_file: DataFile = _field(1)


class Fragment(Message):
    """`row_ids` is of the type RowIds. `last_updated` and `created` are of the type RowVersions.

    The fields 6, 8 and 10 would name files with row ids and row versions. Lance 14 neither writes nor reads them.
    """

    id: int = _field(1)
    files: MutableSequence[DataFile] = _field(2)
    deletion_file: DeletionFile = _field(3)
    physical_rows: int = _field(4)
    row_ids: bytes = _field(5, optional=True)
    last_updated: bytes = _field(7, optional=True)
    created: bytes = _field(9, optional=True)
    overlays: MutableSequence[Overlay] = _field(11)


class Range(Message):
    start: int = _field(1)
    end: int = _field(2)


class Segment(Message):
    """Numbers. Lance has four more encodings, which only it decodes."""

    range: Range = _field(1)


class RowIds(Message):
    segments: MutableSequence[Segment] = _field(1)


class VersionRun(Message):
    span: Segment = _field(1)
    version: int = _field(2)


class RowVersions(Message):
    runs: MutableSequence[VersionRun] = _field(1)


def encode_run(start: int, end: int, version: int) -> bytes:
    """Encode one version for the rows from one position to another; without rows, return nothing."""
    if start == end:
        return b""
    span = Segment(range=Range(start=start, end=end))
    return RowVersions(runs=[VersionRun(span=span, version=version)]).SerializeToString()


class Uuid(Message):
    uuid: bytes = _field(1)


class IndexFile(Message):
    path: str = _field(1)
    size_bytes: int = _field(2)


class Index(Message):
    uuid: Uuid = _field(1)
    name: str = _field(3)
    base_id: int = _field(9, optional=True)
    files: MutableSequence[IndexFile] = _field(10)


class IndexSection(Message):
    """`indices` are of the type Index."""

    indices: MutableSequence[bytes] = _field(1)


class Property(Message):
    key: str = _field(1)
    value: str = _field(2)


class Append(Message):
    fragments: MutableSequence[bytes] = _field(1)


class CreateIndex(Message):
    new_indices: MutableSequence[bytes] = _field(1)
    removed_indices: MutableSequence[bytes] = _field(2)


class RewriteGroup(Message):
    old_fragments: MutableSequence[bytes] = _field(1)
    new_fragments: MutableSequence[bytes] = _field(2)


class Rewrite(Message):
    groups: MutableSequence[RewriteGroup] = _field(3)


class Restore(Message):
    version: int = _field(1)


class Update(Message):
    removed_fragment_ids: MutableSequence[int] = _field(1)
    updated_fragments: MutableSequence[bytes] = _field(2)
    new_fragments: MutableSequence[bytes] = _field(3)


class Transaction(Message):
    """It has one of the operations. Lance reads it to judge concurrent writes."""

    read_version: int = _field(1)
    uuid: str = _field(2)
    properties: MutableSequence[Property] = _field(4)
    append: Append = _field(100)
    create_index: CreateIndex = _field(103)
    rewrite: Rewrite = _field(104)
    restore: Restore = _field(106)
    update: Update = _field(108)


_CLASSES: dict[type[Message], Any] = {}
_LOCK = Lock()


def _generated(described: type[Message]) -> Any:
    """Return the generated class of a message. All are generated at the first use."""
    with _LOCK:  # two generated classes of one message could not be nested in each other
        if not _CLASSES:
            _CLASSES.update(_generate())
    return _CLASSES[described]


def _generate() -> dict[type[Message], Any]:
    # Not at the top: a command that reads no manifest does not need them.
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="anabranch.proto", package="anabranch", syntax="proto3")
    described = Message.__subclasses__()
    for kind in described:
        message = file.message_type.add(name=kind.__name__)
        for name, annotation in get_type_hints(kind).items():
            _describe_field(message, name, annotation, getattr(kind, name))
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    find = pool.FindMessageTypeByName
    return {kind: message_factory.GetMessageClass(find(f"anabranch.{kind.__name__}")) for kind in described}


def _describe_field(message: Any, name: str, annotation: Any, described: _Field) -> None:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    repeated = get_args(annotation)
    kind = repeated[0] if repeated else annotation
    field = message.field.add(name=name, number=described.number)
    field.label = FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL
    if issubclass(kind, Message):
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".anabranch.{kind.__name__}"
    else:
        types = {
            bool: FieldDescriptorProto.TYPE_BOOL,
            bytes: FieldDescriptorProto.TYPE_BYTES,
            str: FieldDescriptorProto.TYPE_STRING,
            # On the wire, these are the same as the smaller types that Lance has for some fields.
            int: FieldDescriptorProto.TYPE_INT64 if described.signed else FieldDescriptorProto.TYPE_UINT64,
        }
        field.type = types[kind]
    if described.optional:
        # protobuf describes an optional field as the only member of a group.
        field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")


@cache
def _decode_error() -> type[Exception]:
    from google.protobuf.message import DecodeError

    found: type[Exception] = DecodeError
    return found
