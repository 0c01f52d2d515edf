"""Traces that somebody forged with the specification in hand: the chain is made to fit, something else is not.

Each is a function from the lines of the valid vector `small` to other lines. It must never say what is right: two
verifiers are asked.
"""

from __future__ import annotations

from make_vectors import Damage, Lines, chained, edit

_SHA = b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"


def rechained(number: int, old: bytes, new: bytes) -> Damage:
    """Change line `number` and chain all anew."""
    return lambda lines: chained(edit(number, old, new)(lines))


def grown(number: int, members: bytes) -> Damage:
    """Add members to the end of line `number` and chain all anew; in the seal they come before its `sha`."""

    def damage(lines: Lines) -> Lines:
        line = lines[number - 1]
        cut = len(line) - (75 if line is lines[-1] else 2)
        return chained([*lines[: number - 1], line[:cut] + members + line[cut:], *lines[number:]])

    return damage


def _deep(levels: int) -> bytes:
    return b',"x":' + b"[" * levels + b"]" * levels


_TIMES = [
    b"1764000000.25000", b"1764000000.2500000", b"1764000000", b"01764000000.250000", b"0764000000.250000",
    b"-1.500000",
    b"-0.000000", b"--1.500000", b"999999999999.000000", b"1000000000000.000000", b"1e9.000000", b"nan", b'"1.000000"',
    b"1764000000,250000", b"176400000x.250000",
]  # fmt: skip
_OPS = [
    b'""', b'"fs.read', b'"fs read"', b'"fs\\u002eread"', b'"' + b"x" * 64 + b'"', b'"' + b"x" * 65 + b'"',
    b'"run.end"', b"5", b"null", b'"fs.r\\"ead"', b'"run.start"',
]  # fmt: skip
_COUNTS = [
    (b'"lines":9', b'"lines":9.0'), (b'"lines":9', b'"lines":"9"'), (b'"lines":9', b'"lines":8'),
    (b'"lines":9,', b""), (b'"meta":5', b'"meta":4'), (b'"deny":1', b'"deny":true'),
    (b'"deny":1', b'"deny":1,"later":0'),
    (b',"deny":1', b""), (b'"blobs":0', b'"blobs":1'), (b'"blobs":0', b'"blobs":false'), (b'"blobs":0,', b""),
    (b'"blobs":0', b'"blobs":-0'), (b'"blobs":0', b'"blobs":0,"blobs":0'), (b'"status":0', b'"status":"x"'),
    (b'"signal":0,', b""), (b'"duration":1.25', b'"duration":NaN'), (b'"duration":1.25', b'"duration":1e999'),
    (b'"lines":9', b'"li\\u006ees":9'), (b'"args":{', b'"args":[{'), (b'"lines":9', b'"lines":9,"x":' + b"9" * 5000),
]  # fmt: skip
_FIRST = [
    (b'"format":"agentbox-trace/1",', b""), (b"-trace/1", b"-trace/2"), (b'"agentbox-trace/1"', b"1"),
    (b'"format":', b'"f\\u006frmat":'), (b'"run.start"', b'"run.begin"'), (b'"kind":"meta"', b'"kind":"observe"'),
    (b'"format":', b'"format":"x","format":'), (b'"args":{', b'"args":[{'), (b'"cwd":', b'"cwd":NaN,"c":'),
]  # fmt: skip
_REFERENCES = [
    b',"x":{"blob":"%s","size":5}' % _SHA, b',"x":{"blob":"%s"}' % _SHA.upper(), b',"x":{"blob":"%s"}' % _SHA[1:],
    b',"x":{"blob": "%s"}' % _SHA, b',"x":"\\"blob\\":\\"%s\\""' % _SHA, b',"x":{"\\u0062lob":"%s"}' % _SHA,
]  # fmt: skip

FORGED: dict[str, Damage] = {
    **{f"time {new.decode()}": rechained(4, b"1764000000.375000", new) for new in _TIMES},
    **{f"op {new.decode()[:12]} {len(new)}": rechained(3, b'"fs.read"', new) for new in _OPS},
    **{f"seal {old.decode()} {new.decode()[:24]}": rechained(9, old, new) for old, new in _COUNTS},
    **{f"first {old.decode()} {new.decode()}": rechained(1, old, new) for old, new in _FIRST},
    **{f"reference {n} in line {at}": grown(at, new) for n, new in enumerate(_REFERENCES) for at in (1, 4, 9)},
    "kind of its own": rechained(3, b'"observe"', b'"observed"'),
    "kind in capitals": rechained(3, b'"observe"', b'"OBSERVE"'),
    "members in another order": rechained(3, b'"kind":"observe","op":"fs.read"', b'"op":"fs.read","kind":"observe"'),
    "space after a comma": rechained(3, b',"lane"', b', "lane"'),
    "space before op": rechained(3, b'"op":"', b'"op": "'),
    "tab in args": rechained(3, b'"path"', b'\t"path"'),
    "CR before LF": lambda x: chained([*x[:2], x[2][:-1] + b"\r\n", *x[3:]]),
    "latin letter": rechained(3, b"a.txt", b"\xe4.txt"),
    "utf-8 letter in line 0": rechained(1, b"agent.py", "\u00e9.py".encode()),
    "DEL": rechained(3, b"a.txt", b"\x7f.txt"),
    "NUL": rechained(3, b"a.txt", b"\x00.txt"),
    "no brace": lambda x: chained([*x[:2], x[2][:-3] + b"\n", *x[3:]]),
    "blank behind the brace": lambda x: chained([*x[:2], x[2][:-1] + b" \n", *x[3:]]),
    "not closed": lambda x: chained([*x[:2], x[2].replace(b"}", b"") + b"", *x[3:]]),
    "nothing behind op": lambda x: chained([*x[:2], x[2][: x[2].index(b'"lane"')] + b"}\n", *x[3:]]),
    "op is all there is": lambda x: chained([*x[:2], x[2][: x[2].index(b',"lane"')] + b"}\n", *x[3:]]),
    "empty line": lambda x: [*x[:3], b"\n", *x[3:]],
    "op twice": grown(3, b',"op":"run.end","kind":"meta"'),
    "args is no object": rechained(3, b'"args":{', b'"args":7,"x":{'),
    "seal of another kind": rechained(9, b'"meta"', b'"deny"'),
    "seal with another op": rechained(9, b'"run.end"', b'"run.fin"'),
    "sha in capitals": lambda x: [*x[:-1], x[-1][:-67] + x[-1][-67:-3].upper() + x[-1][-3:]],
    "blank before the seal's sha": lambda x: [*x[:-1], x[-1].replace(b',"sha"', b', "sha"')],
    "seal without sha": lambda x: [*x[:-1], x[-1][:-75] + b"}\n"],
    "seal in the middle": lambda x: chained([*x[:4], x[-1], *x[4:]]),
    "an entry that ends like a seal": lambda x: chained([*x[:-1], x[3][:-2] + x[-1][-75:], x[-1]]),
    "only line 0": lambda x: x[:1],
    "only a seal": lambda x: chained(x[-1:]),
    "line 0 twice": lambda x: chained([x[0], *x]),
    "100 levels": grown(1, _deep(99)),
    "101 levels": grown(1, _deep(100)),
    "100 levels in the seal": grown(9, _deep(99)),
    "5000 levels in the seal": grown(9, _deep(5000)),
    "numbers from 1": lambda x: [line.replace(b'"seq":%d' % n, b'"seq":%d' % (n + 1)) for n, line in enumerate(x)],
    "number with a zero": lambda x: [*x[:3], x[3].replace(b'"seq":3', b'"seq":03'), *x[4:]],
    "number of 20 digits": lambda x: [*x[:3], x[3].replace(b'"seq":3', b'"seq":' + b"3" * 20), *x[4:]],
    "number of 19 digits": lambda x: [*x[:3], x[3].replace(b'"seq":3', b'"seq":' + b"3" * 19), *x[4:]],
    "two lines in one": lambda x: [*x[:3], x[3][:-1] + b" " + x[4], *x[5:]],
    "two lines in one, nothing between": lambda x: [*x[:3], x[3][:-1] + x[4], *x[5:]],
    "a line for another": lambda x: [*x[:3], x[5], *x[4:]],
    "put in with a high number": lambda x: [*x[:3], x[6], *x[3:]],
    "put in with a low number": lambda x: [*x[:5], x[1].replace(b"python", b"perl"), *x[5:]],
    "put in, the rest renumbered": lambda x: [*x[:3], *chained([*x[:4], *x[3:]])[3:5], *x[4:]],
    "order turned round": lambda x: x[::-1],
    "short beginning": lambda x: [b'{"prev":"000'],
    "short beginning with LF": lambda x: [b'{"prev":"000\n'],
}
