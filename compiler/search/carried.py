"""Types of the values that searches carry from step to step, as annotations of record fields."""

from typing import Annotated

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.ops.keys import ROOM

NEVER = float("-inf")
"""The score of entries that are empty or must not be chosen."""

_BATCH, _BEAM, _LENGTH, _ROOM = Axis("batch"), Axis("beam"), Axis("length"), Axis(ROOM)

Integer = Annotated[str, Type("int64")]
Float = Annotated[str, Type("float32")]

Flags = Annotated[str, Type("bool", (_BATCH,))]
Integers = Annotated[str, Type("int64", (_BATCH,))]
Tokens = Annotated[str, Type("int64", (_BATCH, Axis("prefix")))]
Sums = Annotated[str, Type("float32", (_BATCH,))]

GroupIntegers = Annotated[str, Type("int64", (_BATCH, Axis("groups")))]

BeamIntegers = Annotated[str, Type("int64", (_BATCH, _BEAM))]
BeamScores = Annotated[str, Type("float32", (_BATCH, _BEAM))]
BeamTokens = Annotated[str, Type("int64", (_BATCH, _BEAM, _LENGTH))]

Places = Annotated[str, Type("int64", (_ROOM,))]
Ranks = Annotated[str, Type("int64", (_BEAM,))]
RoomTokens = Annotated[str, Type("int64", (_BATCH, _ROOM))]
RoomFloats = Annotated[str, Type("float32", (_BATCH, _ROOM))]
BeamRoomTokens = Annotated[str, Type("int64", (_BATCH, _BEAM, _ROOM))]
