"""The vectors of docs/spec/policy.md: what any implementation must parse and decide."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agentbox.policy import KINDS, Policy, PolicyError, canonical_address, is_special_address, parse

VECTORS = Path(__file__).resolve().parents[1] / "vectors"


def rows(name: str) -> list[dict]:
    """The vectors of one file."""
    return [json.loads(line) for line in (VECTORS / f"{name}.jsonl").read_text().splitlines()]


def decisions() -> list:
    return [pytest.param(row, id=f"{kind}: {row['name']}") for kind in KINDS for row in rows(kind)]


def at_home(row: dict, folder: Path) -> dict:
    """The vector with its files made and `{tmp}` replaced by where they are."""
    for name in row.get("files", ()):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("#!/bin/sh\n")
        file.chmod(0o755)
    for name, target in row.get("links", {}).items():
        (folder / name).symlink_to(target)
    return json.loads(json.dumps(row).replace("{tmp}", str(folder)))


@pytest.mark.parametrize("row", [pytest.param(row, id=row["name"]) for row in rows("parse")])
def test_parse(row):
    """A text gives exactly the rules of the vector, or the error with its code and line."""
    try:
        policy = parse(row["policy"], cwd=row["cwd"], home=row["home"], search=row["search"])
    except PolicyError as error:
        assert {"code": error.code, "line": error.line} == row.get("error")
        assert error.hint or error.code in ("bad-character", "bad-path", "bad-glob", "not-text")
        assert "\n" not in str(error)
        assert not str(error).endswith(".")
    else:
        assert policy.normal_form()["rules"] == row.get("rules")


@pytest.mark.parametrize("row", decisions())
def test_decisions(row, tmp_path):
    """Every target of the vector is allowed by the rule, or denied with the fix, that it names."""
    row = at_home(row, Path(os.path.realpath(tmp_path)))
    policy = parse(row["policy"], cwd=row["cwd"], home=row["home"], search=row.get("search", "/agentbox-vectors/none"))
    assert policy.normal_form()["rules"] == row["rules"]
    again = Policy.from_normal_form(json.loads(json.dumps(policy.normal_form())))
    for case in row["cases"]:
        for subject in (policy, again):
            decision = subject.decide(*case["target"])
            got = {"target": case["target"], "allowed": decision.allowed}
            if decision.allowed:
                got["line"] = decision.rule.line
            else:
                got["fix"] = decision.fix
                assert decision.reason
            assert got == case, decision.text()


@pytest.mark.parametrize("row", decisions())
def test_fixes(row, tmp_path):
    """The line that a denial suggests, added to the policy, makes that very target allowed."""
    row = at_home(row, Path(os.path.realpath(tmp_path)))
    scope = {"cwd": row["cwd"], "home": row["home"], "search": row.get("search", "/agentbox-vectors/none")}
    for case in row["cases"]:
        if case.get("fix"):
            assert parse(row["policy"] + case["fix"] + "\n", **scope).decide(*case["target"]).allowed, case


@pytest.mark.parametrize("row", [pytest.param(row, id=row["text"] or "empty") for row in rows("addresses")])
def test_addresses(row):
    """An address has the canonical spelling and the special range that the vector names."""
    assert canonical_address(row["text"]) == row["canonical"]
    assert is_special_address(row["text"]) == row["special"]


def test_every_kind_has_vectors():
    """No rule kind is without vectors, allowed and denied, and no file of vectors is without a kind."""
    assert {path.stem for path in VECTORS.glob("*.jsonl")} == {*KINDS, "parse", "addresses"}
    for kind in KINDS:
        outcomes = {case["allowed"] for row in rows(kind) for case in row["cases"]}
        assert outcomes == {True, False}
        assert any(rule["key"] == kind for row in rows("parse") for rule in row.get("rules", ())) or kind == "env"
