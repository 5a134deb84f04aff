#!/usr/bin/env python3
"""embed_ui.py HTML CSS JS OUT - one page of the three as C, for ui.h, and the policy that allows its
style and its script alone, by their hashes."""

import base64
import hashlib
import pathlib
import sys


def source(text):
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def main(html, css, js, out):
    page, style, script = (pathlib.Path(name).read_text() for name in (html, css, js))
    assert "</style" not in style and "</script" not in script
    assert (page + style + script).isascii(), "write other characters as escapes"
    page = page.replace("/*STYLE*/", style).replace("/*SCRIPT*/", script)
    data = page.encode()
    policy = (
        f"default-src 'none'; style-src {source(style)}; script-src {source(script)}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    with open(out, "w") as file:
        file.write('#include "status/ui.h"\n\nconst char kvw_ui[] = {\n')
        for at in range(0, len(data), 24):
            file.write("\t" + ",".join(map(str, data[at : at + 24])) + ",\n")
        file.write("};\n\nconst size_t kvw_ui_len = sizeof(kvw_ui);\n")
        file.write(f'const char kvw_ui_policy[] = "{policy}";\n')


main(*sys.argv[1:])
