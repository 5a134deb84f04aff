#!/usr/bin/env python3
"""embed.py TEXT OUT - the OpenAPI document as C, for openapi.h."""

import json
import pathlib
import sys


def main(text, out):
    data = json.dumps(json.loads(pathlib.Path(text).read_text()), ensure_ascii=True).encode() + b"\n"
    with open(out, "w") as file:
        file.write('#include "admin/openapi.h"\n\nconst char kvw_openapi[] = {\n')
        for at in range(0, len(data), 24):
            file.write("\t" + ",".join(str(byte) for byte in data[at : at + 24]) + ",\n")
        file.write("};\n\nconst size_t kvw_openapi_len = sizeof(kvw_openapi);\n")


main(*sys.argv[1:])
