#!/usr/bin/env python3
"""manual.py OUT KVWAY KVTIER KVTIERD - writes manual pages and shell completions from what --help prints.

OUT gets man/*.1, bash/, zsh/ and fish/. Nothing of it is kept in the tree: the programs' own help is the only source,
so that no page or completion can be older than its program. deploy/package.sh runs this.
"""

import dataclasses
import pathlib
import re
import subprocess
import sys
import textwrap

# "  -c, --config FILE     text"; the value is in capitals or quoted, the text may begin in the next line.
OPTION = re.compile(
    r"^ {2,6}(?:(-\w), )?(--[a-z][a-z0-9-]*)((?: '[^']+'| [A-Z][A-Z0-9_.]*)?)"
    r"((?: (?:\[?--[a-z0-9-]+ [A-Z]+\]?))*)(?: +(\S.*))?$"
)
FILES = {
    "kvway": ["/etc/kvway/kvway.yaml", "/usr/share/doc/kvway/REFERENCE.md", "/usr/share/doc/kvway/examples"],
    "kvtierd": ["/etc/kvtierd/kvtierd.yaml", "/usr/share/doc/kvtier/kvtierd-REFERENCE.md"],
    "kvtier": ["/usr/share/doc/kvtier/REFERENCE.md", "/usr/share/doc/kvtier/examples"],
}
# Of kvway, those with a help of their own.
VERBS = ("compare", "explain", "groups", "key", "render", "top", "trace", "workers")
# Sections about files of the source tree.
LEFT_OUT = {"Where to look next"}


@dataclasses.dataclass
class Option:
    short: str  # "-c" or ""
    long: str  # "--config" or ""
    value: str  # "FILE" or ""
    text: str
    choices: list = dataclasses.field(default_factory=list)

    def names(self):
        return [name for name in (self.short, self.long) if name]


@dataclasses.dataclass
class Command:
    """A program, or a verb of one that has a help of its own."""

    words: list  # ["kvtier", "stat"]
    help: str
    summary: str = ""
    options: list = dataclasses.field(default_factory=list)
    verbs: dict = dataclasses.field(default_factory=dict)  # word: Command, or a summary
    operand: str = ""  # FILE, FOLDER or ""


def ask(program, *words):
    return subprocess.run([program, *words], capture_output=True, text=True, check=True, timeout=30).stdout


# --- reading a help -------------------------------------------------------------------------------


def choices_of(option, help_text):
    """Words between which a value is chosen, where the help lists them."""
    if option.long == "--strategy":
        section = help_text.split("\nStrategies:\n")[1].split("\n\n")[0]
        return re.findall(r"^  ([a-z0-9_]+) ", section, re.M)
    listed = re.fullmatch(r"([a-z-]+(?:, [a-z-]+)*) or ([a-z-]+)(?: \(default.*)?", option.text)
    return [*listed[1].split(", "), listed[2]] if listed else []


def usage_of(text):
    """Lines after Usage: until the next empty one."""
    found = re.search(r"^usage:\s*(.*?)\n\s*\n", text + "\n\n", re.S | re.M | re.I)
    return found[1].splitlines() if found else []


def options_of(text):
    found, lines = [], text.splitlines()
    for number, line in enumerate(lines):
        match = OPTION.match(line)
        if not match:
            continue
        short, long, value, more, first = match.groups()
        rest = [first] if first else []
        for below in lines[number + 1 :]:
            if OPTION.match(below) or not re.match(r" {12,}\S", below):
                break
            rest.append(below.strip())
        option = Option(short or "", long, value.strip().strip("'"), " ".join(rest))
        option.choices = choices_of(option, text)
        found.append(option)
        for name, its in re.findall(r"(--[a-z0-9-]+) ([A-Z]+)", more):
            found.append(Option("", name, its, option.text))
    known = {name for option in found for name in option.names()}
    # Those that only the usage names: `-c FILE`, `--example`.
    for name, value in re.findall(r"(?<![\w-])(--?[a-z][a-z-]*)\b(?: ([A-Z]+))?", " ".join(usage_of(text))):
        if name not in known:
            known.add(name)
            is_long = name.startswith("--")
            found.append(Option("" if is_long else name, name if is_long else "", value, ""))
    return found


def summary_of(words, text):
    """The first sentence, without the name in front of it."""
    paragraph = " ".join(text.split("\n\n")[0].split())
    paragraph = re.sub(rf"^{' '.join(words)} (-f |- )?", "", paragraph)
    return re.split(r"\.(?: |$)", paragraph)[0]


def read_command(program, words, verb_help=()):
    """verb_help: verbs that answer --help themselves."""
    text = ask(program, *words[1:], "--help")
    command = Command(words, text, summary_of(words, text), options_of(text))
    usage = [line for line in usage_of(text) if words[0] in line]
    prefix = " ".join(words)
    for line in usage:
        verb = re.search(rf"{prefix} ([a-z]+)\b", line)
        if verb and verb[1] not in command.verbs:
            command.verbs[verb[1]] = (re.split(r" {2,}", line.strip()) + [""])[-1] if "  " in line.strip() else ""
    for verb, summary in re.findall(r"^  ([a-z]+) {2,}(\S.*)$", text.split("\n\nStrategies:")[0], re.M):
        if words == ["kvtier"]:
            command.verbs[verb] = summary
    for verb in [*verb_help, *(command.verbs if words == ["kvtier"] else ())]:
        command.verbs[verb] = read_command(program, [*words, verb])
    operand = re.search(r"\b(FOLDER|FILE|CONFIG\.JSON)\]?$", usage[0].strip()) if usage else None
    if operand and len(words) > 1 and not re.search(r"--?\w+ \[?FILE\]?$", usage[0]):
        command.operand = "FOLDER" if operand[1] == "FOLDER" else "FILE"
    return command


# --- manual pages ---------------------------------------------------------------------------------


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.M)


def roff_body(text, section="SH"):
    """Paragraphs, options, tables and examples of a help, below its first paragraph and usage."""
    out = []
    for block in text.split("\n\n"):
        lines = block.strip("\n").splitlines()
        if not lines:
            continue
        if re.match(r"usage:", lines[0], re.I):
            usage = textwrap.dedent("\n".join(lines).replace("usage:", "      ", 1).replace("Usage:\n", "", 1))
            out += [f".{section} SYNOPSIS", ".nf", roff(usage), ".fi"]
            continue
        heading = re.fullmatch(r"([A-Z][^:]*):", lines[0])
        if heading and len(lines) > 1:
            if heading[1] in LEFT_OUT:
                continue
            out.append(f".{section} {roff(heading[1].upper())}")
            lines = lines[1:]
        else:
            out.append(".PP")
        while lines:
            option = OPTION.match(lines[0])
            if option:
                text_at = lines[0].index(option[5], option.end(4)) if option[5] else len(lines[0])
                out += [".TP", f".B {roff(lines[0][:text_at].strip())}"]
                out.append(roff(option[5]) if option[5] else "\\&")
                lines = lines[1:]
                while lines and re.match(r" {12,}\S", lines[0]) and not OPTION.match(lines[0]):
                    out.append(roff(lines[0].strip()))
                    lines = lines[1:]
            elif lines[0].startswith("  "):
                out += [".PP", ".EX"]
                while lines and lines[0].startswith("  ") and not OPTION.match(lines[0]):
                    out.append(roff(lines[0]))
                    lines = lines[1:]
                out.append(".EE")
            else:
                out.append(roff(lines[0]))
                lines = lines[1:]
    return out


def manual_page(command, version, see):
    name = "-".join(command.words)
    head, _, body = command.help.partition("\n\n")
    out = [
        f'.TH {name.upper()} 1 "" "{version}" "kvway"',
        ".SH NAME", f"{roff(name)} \\- {roff(command.summary)}",
        *roff_body(body if re.match(r"usage", body.lstrip(), re.I) else f"{head}\n\n{body}"),
    ]  # fmt: skip
    for verb, its in command.verbs.items():
        if isinstance(its, Command) and command.words == ["kvtier"]:
            out += [f".SH {roff(verb.upper())}", roff(its.summary[0].upper() + its.summary[1:] + ".")]
            out += roff_body(its.help.partition("\n\n")[2], "SS")
    out += [".SH FILES", *(line for path in FILES[command.words[0]] for line in (".TP", f".I {roff(path)}", "\\&"))]
    out += [".SH SEE ALSO", ",\n".join(f".BR {roff(other)} (1)" for other in see if other != name)]
    return "\n".join(out).replace(" (1),", " (1),") + "\n"


# --- completions ----------------------------------------------------------------------------------

PATHS = {"FILE": "file", "RUNNING": "file", "FOLDER": "folder"}


def cases(command):
    """(verb or "", its options, its operand, the words it continues with); the program itself comes last."""
    for verb, its in command.verbs.items():
        if isinstance(its, Command):
            options = its.options
            if verb == "render":  # without -f it takes the program's own
                known = {name for option in options for name in option.names()}
                options = options + [option for option in command.options if not known & set(option.names())]
            yield verb, options, its.operand, list(its.verbs)
    yield "", command.options, "FILE" if command.words[0] == "kvtierd" else "", list(command.verbs)


def bash_completion(command):
    name = command.words[0]
    out = [
        f"# bash completion of {name}, written from its --help", f"_{name}()", "{",
        "\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}", "\tCOMPREPLY=()",
        '\tcase "${COMP_WORDS[1]}" in',
    ]  # fmt: skip
    for verb, options, operand, verbs in cases(command):
        out.append(f"\t{verb or '*'})")
        out.append('\t\tcase "$prev" in')
        for option in options:
            if option.value:
                how = {"file": '-f -- "$cur"', "folder": '-d -- "$cur"'}.get(PATHS.get(option.value), "")
                if option.choices:
                    how = f'-W "{" ".join(option.choices)}" -- "$cur"'
                reply = f"mapfile -t COMPREPLY < <(compgen {how}); " if how else ""
                out.append(f"\t\t{'|'.join(option.names())}) {reply}return ;;")
        out.append("\t\tesac")
        words = [name for option in options for name in option.names()]
        others = [f'compgen -W "{" ".join(verbs)}" -- "$cur"'] if verbs else []
        others += [f'compgen -{"d" if operand == "FOLDER" else "f"} -- "$cur"'] if operand else []
        out.append('\t\tcase "$cur" in')
        out.append(f"\t\t-*) mapfile -t COMPREPLY < <(compgen -W \"{' '.join(words)}\" -- \"$cur\") ;;")
        if others:
            out.append(f"\t\t*) mapfile -t COMPREPLY < <({'; '.join(others)}) ;;")
        out += ["\t\tesac", "\t\t;;"]
    out += ["\tesac", "}", f"complete -o filenames -F _{name} {name}"]
    return "\n".join(out) + "\n"


def zsh_quote(text):
    return text.replace("'", "'\\''").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")


def zsh_completion(command):
    name = command.words[0]
    action = {"file": "_files", "folder": "_files -/"}
    out = [f"#compdef {name}", f"# written from {name} --help", f"_{name}() {{", "\tlocal -a specs", "\tcase ${words[2]} in"]
    for verb, options, operand, verbs in cases(command):
        out += [f"\t{verb or '*'})", "\t\tspecs=("]
        for option in options:
            ending = ""
            if option.value:
                how = f"({' '.join(option.choices)})" if option.choices else action.get(PATHS.get(option.value), " ")
                ending = f":{zsh_quote(option.value)}:{how}"
            for each in option.names():
                out.append(f"\t\t\t'*{each}[{zsh_quote(option.text)}]{ending}'")
        if verbs:
            out.append(f"\t\t\t'*:command:({' '.join(verbs)})'")
        elif operand:
            out.append(f"\t\t\t'*:{operand}:{action['folder' if operand == 'FOLDER' else 'file']}'")
        out += ["\t\t)", "\t\t;;"]
    out += ["\tesac", "\t_arguments $specs", "}", f'_{name} "$@"']
    return "\n".join(out) + "\n"


def fish_quote(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def fish_completion(command):
    name = command.words[0]
    out = [f"# fish completion of {name}, written from its --help", f"complete -c {name} -f"]
    verbs = " ".join(command.verbs)
    for verb, options, operand, inner in cases(command):
        seen = f"__fish_seen_subcommand_from {verb}" if verb else f"not __fish_seen_subcommand_from {verbs}"
        when = f"-n {fish_quote(seen)}"
        for word in inner:
            its = command.verbs.get(word, "") if not verb else ""
            text = its.summary if isinstance(its, Command) else its
            out.append(f"complete -c {name} {when} -a {word}" + (f" -d {fish_quote(text)}" if text else ""))
        if operand:
            out.append(f"complete -c {name} {when} -F")
        for option in options:
            # An option of the program itself is also one of its verbs without a help of their own.
            own = [word for word, its in command.verbs.items() if isinstance(its, Command)]
            where = when if verb else (f"-n {fish_quote('not __fish_seen_subcommand_from ' + ' '.join(own))}" if own else "")
            parts = [f"complete -c {name}", where]
            parts += [f"-s {option.short[1:]}"] if option.short else []
            parts += [f"-l {option.long[2:]}"] if option.long else []
            if option.value:
                parts.append("-r -F" if option.value in PATHS else "-x")
            if option.choices:
                parts.append(f"-a {fish_quote(' '.join(option.choices))}")
            if option.text:
                parts.append(f"-d {fish_quote(option.text)}")
            out.append(" ".join(part for part in parts if part))
    return "\n".join(out) + "\n"


def main(out, kvway, kvtier, kvtierd):
    version = ask(kvway, "--version").strip()
    commands = [
        read_command(kvway, ["kvway"], VERBS),
        read_command(kvtier, ["kvtier"]),
        read_command(kvtierd, ["kvtierd"]),
    ]
    pages = [*commands, *(commands[0].verbs[verb] for verb in VERBS)]
    names = ["-".join(page.words) for page in pages]
    for folder in ("man", "bash", "zsh", "fish"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    for page, name in zip(pages, names):
        (out / "man" / f"{name}.1").write_text(manual_page(page, version, sorted(names)))
    for command in commands:
        name = command.words[0]
        (out / "bash" / name).write_text(bash_completion(command))
        (out / "zsh" / f"_{name}").write_text(zsh_completion(command))
        (out / "fish" / f"{name}.fish").write_text(fish_completion(command))


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*map(pathlib.Path, sys.argv[1:]))
