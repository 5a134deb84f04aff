"""heard.py PORT - what a vLLM engine's replay socket has, as one JSON object for each event, oldest first."""

import json
import sys

import msgspec
import zmq


def plain(value):
    return value.hex() if isinstance(value, bytes) else value


def main(port):
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.connect(f"tcp://127.0.0.1:{port}")
    socket.send_multipart([b"", (0).to_bytes(8, "big")])
    while socket.poll(10000):
        _, topic, number, payload = socket.recv_multipart()
        if topic == b"" or number == b"\xff" * 8:
            return 0
        for event in msgspec.msgpack.decode(payload)[1]:
            event["seq"] = int.from_bytes(number, "big")
            print(json.dumps(event, default=plain))
    return 1


sys.exit(main(int(sys.argv[1])))
