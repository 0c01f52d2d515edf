"""The public face: loading, errors word for word, explanations, write roots, the starter policy."""

from __future__ import annotations

import hashlib
import os

import pytest

from agentbox.policy import KINDS, Policy, PolicyError, load, parse, starter_policy

SCOPE = {"cwd": "/agentbox-vectors/ws", "home": "/agentbox-vectors/home", "search": "/agentbox-vectors/none"}


def fault(text: str) -> PolicyError:
    """The error that a policy text gives."""
    with pytest.raises(PolicyError) as caught:
        parse(text, name="agentbox.policy", **SCOPE)
    return caught.value


@pytest.mark.attempt("C2")
@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            "# x\nraed: ./a",
            "agentbox.policy:2: got the unknown key raed:, expected read, list, write, net, exec, env or allow",
            "did you mean `read:`?",
        ),
        (
            "Read: ./a",
            "agentbox.policy:1: got the unknown key Read:, expected read, list, write, net, exec, env or allow",
            "did you mean `read:`? Keys are lower case",
        ),
        ("read = ./a", "agentbox.policy:1: got 'read = ./a', expected `key: value`", "did you mean `read: ./a`?"),
        (
            "read:",
            "agentbox.policy:1: got an empty value for read:",
            "write a value after the colon and after each comma, or remove it",
        ),
        (
            "net: a.example:99999",
            "agentbox.policy:1: got port '99999' in a.example:99999, expected a number from 1 to 65535",
            "service names are not accepted; leave :port away to allow every port",
        ),
        (
            "net: https://a.example/x",
            "agentbox.policy:1: got the URL https://a.example/x, expected a host",
            "did you mean `net: a.example`?",
        ),
        (
            "env: AGENTBOX_CHANNEL",
            "agentbox.policy:1: got AGENTBOX_CHANNEL, which is never passed on: agentbox sets it itself",
            "remove the rule",
        ),
        (
            "allow: ./a b, net: a.example",
            "agentbox.policy:1: got ./a b after allow:, expected read, list, write, net, exec or env in front of it",
            "did you mean `allow: read ./a b`?",
        ),
        (
            "read: ./a, write ./b",
            "agentbox.policy:1: got write ./b as a path of read:",
            "did you mean `write: ./b`? Put a path of that name in double quotes",
        ),
        (
            "read: ./x ./y",
            "agentbox.policy:1: got ./x ./y as one value of read:",
            "rules are separated by commas: `read: ./x, ./y`; a name with such characters goes in double quotes",
        ),
        (
            "read: ./x; write: ./y",
            "agentbox.policy:1: got ./x; write: ./y as one value of read:",
            "rules are separated by commas: `read: ./x, write: ./y`; a name with such characters goes in double quotes",
        ),
        (
            "read: ./a write ./b ;",
            "agentbox.policy:1: got ./a write ./b ; as one value of read:",
            "rules are separated by commas: `read: ./a, write: ./b`; a name with such characters goes in double quotes",
        ),
        (
            "",
            "agentbox.policy: got no rule, expected at least one",
            "write one rule a line, such as `read: ./data`, or start from `agentbox init`",
        ),
    ],
)
def test_errors_name_place_got_expected_and_the_way_out(text, message, hint):
    """An error is one line with place, what was got and what was expected; the hint says what to do."""
    error = fault(text)
    assert str(error) == message
    assert error.hint == hint


@pytest.mark.attempt("C2")
@pytest.mark.parametrize("typo", ["reed", "wirte", "nte", "exce", "evn", "alow", "network", "run", "environment"])
def test_a_typo_gets_a_suggestion(typo):
    """Likely misspellings and other tools' words lead to the key that was meant."""
    assert "did you mean `" in fault(f"{typo}: x").hint


class TestLoad:
    """`load` reads a file once and says what is wrong with it."""

    def test_a_file(self, tmp_path):
        """The policy knows its name, resolved path, text and the digest of its bytes."""
        file = tmp_path / "agentbox.policy"
        data = b"\xef\xbb\xbf# caf\xc3\xa9\r\nread: ./data\r\n"
        file.write_bytes(data)
        policy = load(str(file), cwd=str(tmp_path))
        assert policy.path == os.path.realpath(file)
        assert policy.name == str(file)
        assert policy.sha256 == hashlib.sha256(data).hexdigest()
        assert policy.text.encode() == data
        assert policy.rules[0].where == f"{file}:2"
        assert policy.decide("read", os.path.realpath(tmp_path) + "/data/x").rule is policy.rules[0]

    @pytest.mark.parametrize(
        ("data", "code", "line"),
        [
            (b"", "no-rules", 0),
            (b"# nothing\n", "no-rules", 0),
            (b"read: ./a\nread: \xff\n", "not-text", 2),
            (b"\x7fELF\x02\x01\x01\x00\x00", "bad-character", 1),
            ("read: ./a".encode("utf-16"), "not-text", 1),
            (b"#" * (1 << 20) + b"#", "unreadable", 0),
        ],
    )
    def test_what_is_no_policy(self, tmp_path, data, code, line):
        """Empty, binary, oversized and wrongly encoded files are refused with a code, and a line where there is one."""
        file = tmp_path / "p"
        file.write_bytes(data)
        with pytest.raises(PolicyError) as caught:
            load(str(file))
        assert (caught.value.code, caught.value.line) == (code, line)
        assert caught.value.hint
        assert str(caught.value).startswith(str(file))

    def test_missing(self, tmp_path):
        """A missing file leads to `agentbox init`."""
        with pytest.raises(PolicyError, match="no such policy file") as caught:
            load(str(tmp_path / "none"))
        assert "agentbox init" in caught.value.hint
        assert caught.value.code == "unreadable"

    def test_a_directory_and_a_fifo(self, tmp_path):
        """What is no regular file is refused, and a FIFO does not hang."""
        os.mkfifo(tmp_path / "fifo")
        for path in (tmp_path, tmp_path / "fifo"):
            with pytest.raises(PolicyError, match="expected a policy file"):
                load(str(path))

    @pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
    def test_unreadable(self, tmp_path):
        """A file without read permission is refused with the system's reason."""
        file = tmp_path / "p"
        file.write_text("read: ./a\n")
        file.chmod(0)
        with pytest.raises(PolicyError, match="permission denied"):
            load(str(file))


def test_a_lone_surrogate_in_the_text_is_an_error():
    """Text that no file could hold is refused with its line."""
    error = fault("read: ./a\nread: ./\udcff\n")
    assert (error.code, error.line) == ("not-text", 2)


def test_a_denial_explains_itself():
    """The text names kind, target, reason and the exact line to add; the nearest rule is at hand."""
    policy = parse("read: ./data\nnet: a.example:443\nexec: *\nenv: A*\n", name="agentbox.policy", **SCOPE)
    decision = policy.decide("net", "a.example", 80)
    assert decision.text() == (
        "agentbox: net denied: a.example:80: agentbox.policy:2 allows it on port 443 only; "
        "to allow it, add this line to agentbox.policy: net: a.example:80"
    )
    assert str(decision.rule) == "net: a.example:443"
    assert policy.decide("env", "LD_AUDIT").text() == (
        "agentbox: env denied: LD_AUDIT: no env rule names it; "
        "to allow it, add this line to agentbox.policy: env: LD_AUDIT"
    )
    assert policy.decide("env", "AX").text() == "agentbox: env allowed: AX: agentbox.policy:4: env: A*"
    assert policy.decide("write", "/agentbox-vectors/ws/data/x").rule is policy.rules[0]
    assert "leads to 10.0.0.1 (private)" in policy.decide("net", "a.example", 443, "10.0.0.1").reason


def test_programs_are_frozen_at_load(tmp_path):
    """A program that appears earlier in PATH after the load is not what the rule means."""
    early, late = tmp_path / "early", tmp_path / "late"
    early.mkdir()
    late.mkdir()
    (late / "tool").write_text("x")
    (late / "tool").chmod(0o755)
    policy = parse("exec: tool", cwd=str(tmp_path), search=f"{early}:{late}")
    (early / "tool").write_text("x")
    (early / "tool").chmod(0o755)
    assert policy.decide("exec", os.path.realpath(late / "tool"), ["tool"]).allowed
    assert not policy.decide("exec", os.path.realpath(early / "tool"), ["tool"]).allowed


def test_files_that_cannot_be_executed_are_not_programs(tmp_path):
    """Folders and files without the execute bit are passed over when a name is looked up."""
    (tmp_path / "a" / "tool").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "tool").write_text("x")
    policy = parse("exec: tool", cwd=str(tmp_path), search=f"{tmp_path}/a:{tmp_path}/b")
    assert policy.rules[0].form["file"] is None
    decision = policy.decide("exec", os.path.realpath(tmp_path / "b" / "tool"), ["tool"])
    assert decision.reason == "the program of policy:1 was not found at start"


def test_rules_that_name_nothing(tmp_path):
    """Reads and programs that are not there are told; what is there, or may be made by the agent, is not."""
    (tmp_path / "data").mkdir()
    text = (
        "read: ./data, ./daat, ./nowhere/**/*.py, ./data/*.none, ./out/later\n"
        "write: ./out\nexec: gti status, sh, ./tool, ./out/built, *\nnet: nosuch.example\nenv: NOSUCH\n"
    )
    policy = parse(text, name="agentbox.policy", cwd=str(tmp_path), search="/usr/bin:/bin")
    assert [f"{rule.where}: {rule}: {reason}" for rule, reason in policy.absent()] == [
        "agentbox.policy:1: read: ./daat: nothing is there",
        "agentbox.policy:1: read: ./nowhere/**/*.py: nothing is there",
        "agentbox.policy:3: exec: gti status: no such program in PATH outside of the write roots",
        "agentbox.policy:3: exec: ./tool: nothing is there",
    ]


def test_exec_rules_that_can_match_nothing(tmp_path):
    """A folder, and what only a shell would understand, are told; words in double quotes are meant as they are."""
    (tmp_path / "bin").mkdir()
    text = 'exec: ./bin, sh -c | cat, sh a && b, sh > out, sh ; b, sh "|", sh --if=a>b\n'
    policy = parse(text, name="agentbox.policy", cwd=str(tmp_path), search="/usr/bin:/bin")
    shell = "no shell reads it, so it means a program that is given {} as an argument"
    assert [(str(rule), reason) for rule, reason in policy.absent()] == [
        ("exec: ./bin", "it is a folder, and a rule names one program; `exec: *` allows all"),
        ("exec: sh -c | cat", shell.format("|")),
        ("exec: sh a && b", shell.format("&&")),
        ("exec: sh > out", shell.format(">")),
        ("exec: sh ; b", shell.format(";")),
    ]


def test_write_roots_and_the_folders_they_ask_for(tmp_path):
    """Only what is written with a slash at its end is to be made; other names are a file or a folder, as it comes."""
    (tmp_path / "have.d").mkdir()
    text = 'write: ./new, ./made/report.json, ./v1.2/, ./have.d, ./logs/*.txt, ./.cache/, ./new\nwrite: "./x\\*/"\n'
    root = os.path.realpath(tmp_path)
    policy = parse(text, cwd=root)
    names = ("new", "made/report.json", "v1.2", "have.d", ".cache", "x*")
    assert policy.write_roots() == tuple(f"{root}/{name}" for name in names)
    assert policy.write_folders() == tuple(f"{root}/{name}" for name in ("v1.2", ".cache", "x*"))
    assert f"{root}/logs" in policy.changeable() and set(policy.write_roots()) < set(policy.changeable())


def test_only_own_folders_are_made(tmp_path):
    """Folders below the working directory and the home are made; one anywhere else is the user's to make."""
    root = os.path.realpath(tmp_path)
    text = "write: ./out/, ~/state/, ../beside/, /nonexist/x/, ./../ws2/y/, /\n"
    policy = parse(text, cwd=f"{root}/ws", home=f"{root}/home")
    assert policy.made_folders() == (f"{root}/ws/out", f"{root}/home/state")
    policy = parse("write: ~/x/, /y/, ./z/\n", cwd=f"{root}/ws", home="/")
    assert policy.made_folders() == (f"{root}/ws/z",)


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("Makefile", "write: ./Makefile"),
        (".cache", "write: ./.cache"),
        ("x,y", 'write: "./x,y"'),
        ("a]", "write: ./a]"),
        ("go!", "write: ./go!"),
        ("what?", 'write: "./what\\?"'),
        ("[e]*", 'write: "./\\[e]\\*"'),
        ("!^", "write: ./!^"),
    ],
)
def test_the_fix_of_a_denied_write_makes_nothing(tmp_path, name, fix):
    """A path that is not there is named as it is: nothing is made, and wildcard characters are escaped."""
    root = os.path.realpath(tmp_path)
    decision = parse("read: ./data\n", cwd=root).decide("write", f"{root}/{name}")
    assert decision.fix == fix
    policy = parse(f"read: ./data\n{fix}\n", cwd=root)
    assert policy.decide("write", f"{root}/{name}").allowed
    assert policy.write_folders() == ()


def test_folders_that_are_there_are_named_as_they_are(tmp_path):
    """The working directory and the folders above it need no spelling of their own."""
    root = os.path.realpath(tmp_path)
    policy = parse("read: ./data\n", cwd=root)
    assert policy.decide("write", root).fix == "write: ."
    assert policy.decide("write", os.path.dirname(root)).fix == f"write: {os.path.dirname(root)}"
    assert policy.decide("write", "/").fix == "write: /"


def test_the_starter_policy_teaches_every_kind():
    """It parses, allows ./data and ./out only, and each commented example is a rule that parses."""
    text = starter_policy()
    policy = parse(text, **SCOPE)
    assert [str(rule) for rule in policy.rules] == ["read: ./data", "write: ./out/"]
    for key, kind in KINDS.items():
        assert f"# {key}: {kind.summary}" in text
    examples = [
        line[2:] for line in text.splitlines() if line.startswith("# ") and line[2:].split(":")[0] in (*KINDS, "allow")
    ]
    live = [line for line in examples if not any(line == f"{key}: {kind.summary}" for key, kind in KINDS.items())]
    assert len(live) >= 8
    for line in live:
        assert parse(line, **SCOPE).rules
    assert all(len(line) <= 120 for line in text.splitlines())


def test_a_normal_form_is_plain_and_complete():
    """Decisions need nothing but the normal form: text and files are not looked at again."""
    policy = parse("read: ./data\nexec: git status\n", name="p", **SCOPE)
    form = policy.normal_form()
    assert form["format"] == "agentbox-policy/1"
    assert set(form) == {"format", "name", "path", "sha256", "cwd", "home", "search", "rules"}
    again = Policy.from_normal_form(form)
    assert again.sha256 == policy.sha256
    assert again.text == ""
    with pytest.raises(PolicyError, match="expected a normal form of agentbox-policy/1"):
        Policy.from_normal_form({**form, "format": "agentbox-policy/2"})
    with pytest.raises(PolicyError, match="members"):
        Policy.from_normal_form({**form, "rules": [{**form["rules"][0], "extra": 1}]})


def test_another_name_changes_the_texts_only():
    """A policy under another name decides the same, and names its file so in every text."""
    policy = parse("exec: echo hi", name="one.policy", **SCOPE)
    other = policy.renamed("two.policy", "/there/two.policy")
    assert "two.policy" in other.decide("read", "/x").text()
    assert [rule.where for rule in other.rules] == ["two.policy:1"]
    assert (other.name, other.path, other.sha256) == ("two.policy", "/there/two.policy", policy.sha256)
    assert other.normal_form() == {**policy.normal_form(), "name": "two.policy", "path": "/there/two.policy"}
    assert "one.policy" in policy.decide("read", "/x").text()


def test_defaults_come_from_the_process(tmp_path, monkeypatch):
    """Without arguments, the working directory, HOME and PATH of the process are what values are resolved against."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/agentbox-vectors/me")
    monkeypatch.setenv("PATH", "/agentbox-vectors/bin")
    policy = parse("read: ./x, ~/y\n")
    assert [rule.form["root"] for rule in policy.rules] == [os.path.realpath(tmp_path) + "/x", "/agentbox-vectors/me/y"]
    assert policy.search == "/agentbox-vectors/bin"


def test_a_name_that_cannot_be_one_is_told_without_the_port_that_nobody_said():
    """A look-up has none."""
    policy = parse("net: example.com\n")
    assert policy.decide("net", "a\\046b.com", None).target == "a\\046b.com"
    assert policy.decide("net", "a\\046b.com", 80).target == "a\\046b.com 80"
