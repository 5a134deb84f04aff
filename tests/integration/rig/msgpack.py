"""MessagePack, read and written: nothing of it is in the standard library, and the project's own must not
check itself."""

import struct

SIZES = {0xC4: ">B", 0xC5: ">H", 0xC6: ">I", 0xD9: ">B", 0xDA: ">H", 0xDB: ">I"}
COUNTS = {0xDC: ">H", 0xDD: ">I", 0xDE: ">H", 0xDF: ">I"}
NUMBERS = {
    0xCA: ">f",
    0xCB: ">d",
    0xCC: ">B",
    0xCD: ">H",
    0xCE: ">I",
    0xCF: ">Q",
    0xD0: ">b",
    0xD1: ">h",
    0xD2: ">i",
    0xD3: ">q",
}
CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}


class Reader:
    def __init__(self, data):
        self.data = data
        self.at = 0

    def take(self, size):
        piece = self.data[self.at : self.at + size]
        assert len(piece) == size, "cut off"
        self.at += size
        return piece

    def number(self, form):
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def list(self, count):
        return [self.value() for _ in range(count)]

    def dict(self, count):
        return {self.value(): self.value() for _ in range(count)}

    def value(self):
        head = self.take(1)[0]
        if head < 0x80:
            return head
        if head < 0x90:
            return self.dict(head & 15)
        if head < 0xA0:
            return self.list(head & 15)
        if head < 0xC0:
            return self.take(head & 31).decode()
        if head >= 0xE0:
            return head - 256
        if head in CONSTANTS:
            return CONSTANTS[head]
        if head in NUMBERS:
            return self.number(NUMBERS[head])
        if head in SIZES:
            piece = self.take(self.number(SIZES[head]))
            return piece if head < 0xD0 else piece.decode()
        count = self.number(COUNTS[head])
        return self.dict(count) if head >= 0xDE else self.list(count)


def unpack(data):
    reader = Reader(data)
    value = reader.value()
    assert reader.at == len(data), "bytes after the value"
    return value


def pack(value):
    if value is None:
        return b"\xc0"
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        if 0 <= value < 128:
            return bytes([value])
        return b"\xcf" + struct.pack(">Q", value) if value >= 0 else b"\xd3" + struct.pack(">q", value)
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, bytes):
        return b"\xc6" + struct.pack(">I", len(value)) + value
    if isinstance(value, str):
        data = value.encode()
        return b"\xdb" + struct.pack(">I", len(data)) + data
    if isinstance(value, dict):
        parts = [pack(part) for pair in value.items() for part in pair]
        return b"\xdf" + struct.pack(">I", len(value)) + b"".join(parts)
    return b"\xdd" + struct.pack(">I", len(value)) + b"".join(pack(part) for part in value)
