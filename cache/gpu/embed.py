#!/usr/bin/env python3
"""embed.py IMAGE OUT - a compiled kernel as C."""

import pathlib
import sys


def main(image, out):
    data = pathlib.Path(image).read_bytes()
    with open(out, "w") as file:
        file.write('#include <stdint.h>\n\n#include "image.h"\n\n')
        file.write("/* The loader wants it aligned. */\n")
        file.write("static const uint8_t image[] __attribute__((aligned(64))) = {\n")
        for at in range(0, len(data), 24):
            file.write("\t" + ",".join(str(byte) for byte in data[at : at + 24]) + ",\n")
        file.write("};\n\nconst void *kvt_cuda_image(void)\n{\n\treturn image;\n}\n")


main(*sys.argv[1:])
