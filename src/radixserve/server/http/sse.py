"""Server-sent events: frames of data alone, or with a name."""

import msgspec


def frame(body: msgspec.Struct) -> bytes:
    """An event without a name."""
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


def event_frame(event: msgspec.Struct) -> bytes:
    """An event that is named by the struct's tag."""
    return b"event: " + str(event.__struct_config__.tag).encode() + b"\n" + frame(event)
