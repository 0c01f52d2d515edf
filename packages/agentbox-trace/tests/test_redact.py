"""Redaction: which secrets go, in which forms, and what stays."""

from __future__ import annotations

import base64
import html
import json
import re
import time
import urllib.parse
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentbox.trace import Redactor, TraceWriter, describe_body, load_body, read, same_redacted, verify
from agentbox.trace.redact import _MEMBER, _RULES
from agentbox.trace.secretnames import is_secret_member, is_secret_variable
from agentbox.trace.settings import is_weak

SECRET = 'gh/p+AbC dEf"12é3'
redactor = Redactor({"API_TOKEN": SECRET, "PATH": "/usr/bin", "DB": "postgres://user:hunter22@host/db"}, key=b"key")
MARK = r"«redacted:[A-Za-z0-9_.-]*:[0-9a-f]{8}»"


def forms(value: str) -> dict[str, str]:
    """The forms in which a value must be found."""
    raw = value.encode()
    return {
        "plain": value,
        "quote": urllib.parse.quote(value),
        "quote all": urllib.parse.quote(value, safe=""),
        "quote_plus": urllib.parse.quote_plus(value),
        "lower percent": re.sub("%..", lambda match: match[0].lower(), urllib.parse.quote(value, safe="")),
        "every byte percent": "".join(f"%{byte:02X}" for byte in raw),
        "percent in percent": urllib.parse.quote(urllib.parse.quote(value, safe=""), safe=""),
        "html": html.escape(value),
        "json": json.dumps(value)[1:-1],
        "json utf-8": json.dumps(value, ensure_ascii=False)[1:-1],
        "json in json": json.dumps(json.dumps(value))[1:-1],
        "slash": json.dumps(value)[1:-1].replace("/", "\\/"),
        "hex": raw.hex(),
        "base64": base64.b64encode(raw).decode(),
        "base64 1": base64.b64encode(b"x" + raw + b"yy").decode(),
        "base64 2": base64.b64encode(b"user:" + raw).decode(),
        "base64url": base64.urlsafe_b64encode(b"??>" + raw).decode(),
    }


@pytest.mark.parametrize("form", forms(""))
def test_value_in_any_form(form: str) -> None:
    """The value of a secret variable goes in every form, inside of any text."""
    text = forms(SECRET)[form]
    clean = redactor.text(f"before [{text}] after")
    assert re.fullmatch(rf"before \[[A-Za-z0-9]*\\?\"?{MARK}\\?\"?[A-Za-z0-9=]*\] after", clean), clean
    assert "API_TOKEN" in clean


@pytest.mark.parametrize("length", range(1, len(SECRET)))
def test_the_beginning_of_a_value_where_a_text_was_cut(length: int) -> None:
    """From six characters on, as of whole values; elsewhere in a text it is nobody's secret."""
    text = "curl " + SECRET[:length]
    clean = redactor.doc({"target": text})["target"]
    assert clean == (text if length < 6 else f"curl {redactor.placeholder('API_TOKEN', SECRET)}")
    assert redactor.suspects(text) and redactor.suspects(json.dumps(text)) if length >= 6 else True
    assert redactor.text(text + "!") == text + "!"


@settings(deadline=None)
@given(value=st.text(min_size=6, max_size=20), form=st.sampled_from(sorted(forms(""))))
def test_any_value_in_any_form(value: str, form: str) -> None:
    """No secret value survives in any form, whatever characters it holds."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return
    if is_weak(value):
        return
    one = Redactor({"MY_SECRET": value}, key=b"k")
    text = forms(value)[form]
    assert text not in re.sub(MARK, "", one.text(f"<<{text}>>")), text
    assert one.suspects(f"<<{text}>>") and one.suspects(json.dumps(f"<<{text}>>"))


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("Authorization: Bearer abc\r\nHost: x", "Authorization: «redacted:authorization:*»\r\nHost: x"),
        ("curl -H 'X-Api-Key: abc' x", "curl -H 'X-Api-Key: «redacted:x-api-key:*»' x"),
        ("Cookie: a=b; c=d", "Cookie: «redacted:cookie:*»"),
        ("https://x/?key=AIza&q=1#f", "https://x/?key=«redacted:key:*»&q=1#f"),
        ("https://x/?q=1&access_token=a%20b", "https://x/?q=1&access_token=«redacted:access_token:*»"),
        ("https://x/?api%5Fkey=a", "https://x/?api%5Fkey=«redacted:api_key:*»"),
        (
            "a=1&password=p%20q&user[password]=z",
            "a=1&password=«redacted:password:*»&user[password]=«redacted:user_password_:*»",
        ),
        ("GITHUB_TOKEN=abc make", "GITHUB_TOKEN=«redacted:GITHUB_TOKEN:*» make"),
        ("tool --api-key abc --verbose", "tool --api-key «redacted:api-key:*» --verbose"),
        ("tool --password=abc", "tool --password=«redacted:password:*»"),
        ("ftp://me:pw1@host/", "ftp://me:«redacted:url-password:*»@host/"),
        ("postgres://x:hunter22@h", "postgres://x:«redacted:DB:*»@h"),
        ('{"api_key": "v", "a": 1}', '{"api_key": "«redacted:api_key:*»", "a": 1}'),
        ('{"a":{"token":123}}', '{"a":{"token":"«redacted:token:*»"}}'),
        ('{"apiKey":"a\\"b"}', '{"apiKey":"«redacted:apiKey:*»"}'),
        ('{"api\\u005fkey":"v"}', '{"api\\u005fkey":"«redacted:api_key:*»"}'),
        (
            '{"credentials":{"user":"u","id":7}}',
            '{"credentials":{"user":"«redacted:credentials:*»","id":"«redacted:credentials:*»"}}',
        ),
        ('data: {"password":"v"}\n\n', 'data: {"password":"«redacted:password:*»"}\n\n'),
        (
            '{"x":"{\\"password\\":\\"v\\",\\"b\\":1}"}',
            '{"x":"{\\"password\\":\\"«redacted:password:*»\\",\\"b\\":1}"}',
        ),
        ('name="password"\r\n\r\nhunter\r\n--b', 'name="password"\r\n\r\n«redacted:password:*»\r\n--b'),
        ("{'password': 'x'} \"token\": [", "{'password': 'x'} \"token\": ["),
    ],
)
def test_texts(text: str, clean: str) -> None:
    """Secrets are found by the names in headers, URLs, forms, command lines and JSON, and the rest stays."""
    got = redactor.text(text)
    assert re.sub(":[0-9a-f]{8}»", ":*»", got) == clean
    assert redactor.text(got) == got


@pytest.mark.parametrize(
    "text",
    [
        '{"max_tokens": 5, "usage": {"total_tokens": 10}, "next_page_token": "abc"}',
        "https://x/?page_token=abc&monkey=1&tokenizer=gpt",
        "key=value",
        "the key: value",
        "a password is needed",
        "author: me",
        "/src/auth/token.py",
        "git commit --author me",
        "SSH_AUTH_SOCK=/tmp/agent",
        "keyboard=us",
    ],
)
def test_what_stays(text: str) -> None:
    """Words that only look like the names of secrets are left alone."""
    assert redactor.text(text) == text


def test_documents() -> None:
    """In JSON values secrets go by members, by header pairs and by flags; numbers too."""
    doc = redactor.doc(
        {
            "headers": [["Authorization", "x"], ["accept", "y"]],
            "more": {"Set-Cookie": ["a", "b"], "password": 12345678, "secret": None, "token": True},
            "argv": ["login", "--password", "p", "--user", "me"],
            "pair": ("api-key", "v"),
            SECRET: "by key",
            "n": 1.5,
        }
    )
    text = re.sub(":[0-9a-f]{8}»", "»", json.dumps(doc, ensure_ascii=False))
    assert json.loads(text) == {
        "headers": [["Authorization", "«redacted:Authorization»"], ["accept", "y"]],
        "more": {
            "Set-Cookie": ["«redacted:Set-Cookie»"] * 2,
            "password": "«redacted:password»",
            "secret": None,
            "token": True,
        },
        "argv": ["login", "--password", "«redacted:password»", "--user", "me"],
        "pair": ["api-key", "«redacted:api-key»"],
        "«redacted:API_TOKEN»": "by key",
        "n": 1.5,
    }


def test_placeholders_compare() -> None:
    """Equal secrets of one run look equal, different ones different, and nothing is equal over runs."""
    one, two = Redactor(key=b"1"), Redactor(key=b"2")
    assert one.text("token=aaa") == one.text("token=aaa") != one.text("token=bbb")
    assert one.text("token=aaa") != two.text("token=aaa")
    assert Redactor().text("token=aaa") != Redactor().text("token=aaa")


def test_same_redacted() -> None:
    """Values of two runs are the same when they differ in the digits of placeholders only, also in bodies."""
    one, two = Redactor({"A_TOKEN": "abcdefgh"}), Redactor({"A_TOKEN": "ijklmnop"})
    for size in (1, 5000):
        docs = [
            {
                "url": r.text(f"https://x/?token={value}"),
                value[:0] + "n": [1, (2.0, None)],
                "body": describe_body(f"password={value} " + "x" * size, r)[0],
            }
            for r, value in ((one, "abcdefgh"), (two, "ijklmnop"))
        ]
        assert docs[0] != docs[1] and same_redacted(*docs)
        for change in (
            {"url": "https://x/"},
            {"n": [1, (2, None)]},
            {"body": describe_body("other", two)[0]},
            {"more": 1},
        ):
            assert not same_redacted(docs[0], {**docs[1], **change})
    assert not same_redacted(one.text("token=a"), one.text("password=a"))
    assert not same_redacted([1], [True]) and not same_redacted([1], [1, 2]) and not same_redacted("1", 1)


PIECES = [*'{}[]":=&?;,\\ \n-/@.%+', "token", "password", "Authorization", "abc", "1", SECRET, "«redacted:", "»"]


@settings(deadline=None)
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=30))
def test_total(pieces: list[str]) -> None:
    """Any text is redacted without a crash, and no secret value survives."""
    text = "".join(pieces)
    clean = redactor.text(text)
    assert SECRET not in clean
    assert redactor.data(text.encode()) == clean.encode()


SECRETIVE = [
    "Authorization: Bearer abc", "auth\u0131rization", "Set-Coo\u212aie: a=b", "\u017fet-cookie: a", "--token abc",
    "-p x", '(--api-key x"', "a-b c", 'name="token"\r\n\r\nabc', "https://a:bcd@host/", "?key=abc", "token=abc", " ",
    "\t", "\n", "x", "-", ":", "=", "«redacted:",
]  # fmt: skip


@settings(deadline=None)
@given(pieces=st.lists(st.sampled_from(SECRETIVE), max_size=8))
def test_a_pattern_is_left_out_only_where_it_cannot_match(pieces: list[str]) -> None:
    """What is quickly seen of a text before a pattern is compiled is true of every text that the pattern matches."""
    text = "".join(pieces)
    for may_match, rule, name_of in _RULES:
        assert may_match(text) or not any(map(name_of, re.finditer(rule, text))), rule
    if re.search(_MEMBER, text):
        assert '"' in text and ":" in text


def test_common_headers_need_no_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    """The texts of a run's first entry: words that are stems of secret names, in places where nothing follows them."""
    monkeypatch.setattr(Redactor, "_pattern", lambda self, source: pytest.fail(source))
    header = {
        "argv": ["/usr/bin/python3", "-c", "pass"],
        "policy": "read: ./my-data/keys.txt\nenv: OPENAI_API_KEY\nnet: api.openai.com:443\nexec: git status\n",
        "env": ["HOME", "GITHUB_TOKEN", "PATH"],
    }
    assert redactor.doc(header) == header


def test_binary_bodies() -> None:
    """In bytes that are no text the values of secret variables go, and the other bytes stay."""
    data = b"\xff\xfe" + SECRET.encode() + b"\x00token=abc"
    clean = redactor.data(data)
    assert clean.startswith(b"\xff\xfe\xc2\xabredacted:API_TOKEN:") and clean.endswith(b"\x00token=abc")
    assert redactor.data(b"\xff\xfe nothing") == b"\xff\xfe nothing"


def test_before_hashing(tmp_path: Path) -> None:
    """No secret reaches the file or its blobs, the chain holds, and the hash of a body is that of what was stored."""
    writer = TraceWriter.create(tmp_path / "run.jsonl", redactor=redactor)
    writer.append("meta", "run.start", args={"argv": ["curl", "-H", "Authorization: Bearer abc-def"]})
    bodies = [writer.body(f'{{"password":"abc-def","x":"{SECRET.encode().hex()}"}}' + "x" * size) for size in (0, 5000)]
    writer.append("effect", "http.request", args={"headers": {"Cookie": "abc-def"}}, result={"bodies": bodies})
    writer.append("deny", "net.connect", args={}, extra={"reason": f"no rule for {SECRET}"})
    writer.seal(0, duration=0, failure="token=abc-def")
    writer.close()
    for path in (tmp_path / "run.jsonl", *(tmp_path / "blobs").iterdir()):
        data = path.read_bytes()
        assert b"abc-def" not in data and SECRET.encode() not in data and b"AbC" not in data
        assert SECRET.encode().hex().encode() not in data
    assert verify(writer.path).ok
    for doc in list(read(writer.path))[1].result["bodies"]:
        assert b"redacted:password" in load_body(doc, writer.path) and len(doc["redacted"]) == 64


def test_time_is_linear() -> None:
    """No text makes redaction take quadratic time: a megabyte of each hard pattern takes seconds at most."""
    for piece in (
        '"',
        '\\"',
        "a",
        "a=",
        "--",
        '"token":',
        '\\"token\\":\\"',
        "token",
        "://",
        "Cookie:",
        'name="a"\r\n',
        "[",
        "«redacted:",
    ):
        text = "token " + piece * (200_000 // len(piece))
        start = time.process_time()
        redactor.text(text)
        assert time.process_time() - start < 5, piece


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("GITHUB_TOKEN", True),
        ("OPENAI_API_KEY", True),
        ("AWS_ACCESS_KEY_ID", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("PGPASSWORD", True),
        ("MYSQL_PWD", True),
        ("MY_PAT", True),
        ("npm_config_auth", True),
        ("DJANGO_SECRET_KEY", True),
        ("PATH", False),
        ("PWD", False),
        ("OLDPWD", False),
        ("SSH_AUTH_SOCK", False),
        ("GIT_AUTHOR_NAME", False),
        ("KEYBOARD", False),
        ("MAX_TOKENS", False),
        ("TOKEN_FILE", False),
        ("TERM", False),
        ("", False),
    ],
)
def test_variables(name: str, secret: bool) -> None:
    """Variables are secrets by their names."""
    assert is_secret_variable(name) is secret


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("apiKey", True),
        ("API-Key", True),
        ("x-api-key", True),
        ("refresh_token", True),
        ("userPassword", True),
        ("dbPassword", True),
        ("token", True),
        ("tokens", False),
        ("nextPageToken", False),
        ("max_tokens", False),
        ("key", False),
        ("author", False),
        ("session", False),
    ],
)
def test_members(name: str, secret: bool) -> None:
    """Members are secrets by their names, in any case style."""
    assert is_secret_member(name) is secret


def test_short_values_and_paths() -> None:
    """Values too short to be told apart, small numbers and paths of credential files are not searched for."""
    one = Redactor({"A_TOKEN": "abc", "B_TOKEN": "1234567", "GOOGLE_APPLICATION_CREDENTIALS": "/home/me/key.json"})
    for text in ("abc", "1234567", "/home/me/key.json"):
        assert one.text(text) == text
