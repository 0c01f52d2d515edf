"""Secrets beside their names, in the forms of settings files, programs and shells: how many are found, how much else
is touched."""

from __future__ import annotations

import pytest
from secret_corpus import FORMS, HARMLESS, VALUES

from agentbox.trace import Redactor

redactor = Redactor(key=b"k")
PLANTED = [(form, text.format(value), value) for form, text in FORMS.items() for value in VALUES]


def test_the_corpus_is_large_enough() -> None:
    """The rates mean something."""
    assert len(FORMS) >= 25 and len(PLANTED) >= 120 and len(set(HARMLESS)) >= 150


def test_what_is_found() -> None:
    """At least 98 of 100 planted secrets are gone, and no form is lost as a whole."""
    missed = [(form, text) for form, text, value in PLANTED if value in redactor.text(text)]
    assert len(missed) <= 0.02 * len(PLANTED), missed
    assert all(sum(form == name for name, _ in missed) < len(VALUES) for form in FORMS)


def test_what_is_spared() -> None:
    """At most one of a hundred harmless texts is touched."""
    touched = [(text, clean) for text in HARMLESS if (clean := redactor.text(text)) != text]
    assert len(touched) <= 0.01 * len(HARMLESS), touched


@pytest.mark.parametrize("form", FORMS)
def test_again(form: str) -> None:
    """A text that was redacted is not redacted again, and the name and what is around stay."""
    text = FORMS[form].format(VALUES[0])
    clean = redactor.text(text)
    assert redactor.text(clean) == clean
    before, _, after = FORMS[form].format("\0").partition("\0")
    assert clean.startswith(before[: before.rfind("Bearer") if "Bearer" in before else None]) and clean.endswith(after)


def test_a_weak_value_is_a_secret_beside_its_name_only() -> None:
    """A password that is a common word does not rewrite paths and images; one that is none is found everywhere."""
    weak = Redactor({"POSTGRES_PASSWORD": "postgres", "API_TOKEN": VALUES[0]}, key=b"k")
    for text in ("/usr/lib/postgresql/16/bin/postgres", "image: postgres:16", "postgres://db/x"):
        assert weak.text(text) == text and weak.doc({"argv": [text]}) == {"argv": [text]}
    assert "postgres" not in weak.text("POSTGRES_PASSWORD=postgres").removeprefix("POSTGRES_PASSWORD")
    assert VALUES[0] not in weak.text(f"seen {VALUES[0]} there")


def test_arguments_of_a_client() -> None:
    """`-u user:password` in a list of arguments is taken out for programs that mean it so, and for no others."""
    clean = redactor.doc(["/usr/bin/curl", "-u", "me:word", "https://example.org/"])
    assert clean == [
        "/usr/bin/curl",
        "-u",
        f"me:{redactor.placeholder('user-password', 'word')}",
        "https://example.org/",
    ]
    assert redactor.doc(["docker", "run", "-u", "me:staff", "x"]) == ["docker", "run", "-u", "me:staff", "x"]


@pytest.mark.parametrize(
    "piece", ['password="', "password: ", "a=", "token = x", "<password>", "-u a:", "key='", '\\"']
)
def test_no_form_takes_long(piece: str) -> None:
    """A megabyte of beginnings is done in time: a pattern that backtracks over it would take hours, and be ended."""
    redactor.text(piece * (1_000_000 // len(piece)))
