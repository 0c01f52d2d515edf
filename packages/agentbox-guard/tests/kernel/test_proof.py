"""Which variables are judged, and when a program's file may be written to, without a run."""

import errno
import os
import shutil
import subprocess

import pytest

from agentbox.guard.decisions._variables import Injected
from agentbox.guard.hashes import Hashes
from agentbox.guard.kernel.proof import CONTENT, Content, Proof
from agentbox.policy import parse

OWN = "--require /agentbox/shim.cjs"
ENVIRON = {"PYTHONPATH": "/guard", "NODE_OPTIONS": OWN, "LD_AUDIT": "given", "AGENTBOX_CHANNEL": "/channel"}
RULES = "exec: /x/free\nexec: /x/told now\nexec: /x/both now\nexec: /x/both\n"
BASH, ENV = "/usr/bin/bash", "/usr/bin/env"


@pytest.mark.parametrize(
    ("entry", "free", "told", "bash", "env"),
    [
        ("FOO=LD_PRELOAD=1", True, True, True, True),
        ("LD_PRELOAD", True, True, True, True),
        ("LD_AUDIT=given", True, True, True, True),
        ("PYTHONPATH=/guard", True, True, True, True),
        ("PYTHONUNBUFFERED=1", True, True, True, True),
        ("AGENTBOX_PYTHONPATH=/x", True, False, True, False),
        (f"NODE_OPTIONS={OWN}--no-warnings=/../x", True, False, True, False),
        (f"NODE_OPTIONS={OWN} --no-warnings=/../x", True, False, True, False),
        ("MAKEFLAGS=--jobserver-auth=$(X)", True, False, True, False),
        ("LESS=-FRX", True, True, True, True),
        ("LESS=+!id", True, False, True, True),
        ("LESSKEYIN=/x", True, False, True, True),
        ("CLASSPATH=/x", True, False, True, True),
        ("PYTEST_ADDOPTS=-p x", True, False, True, True),
        ("NPM_CONFIG_SCRIPT_SHELL=/x", True, False, True, True),
        ("npm_Config_userconfig=/x", True, False, True, True),
        ("ZIP=-TT x", True, False, True, True),
        ("NODE_EXTRA_CA_CERTS=/x", True, False, True, True),
        ("CC=/x", True, False, True, True),
        (f"NODE_OPTIONS={OWN}", True, True, True, True),
        (f"NODE_OPTIONS={OWN} --max-old-space-size=512 --no-warnings", True, True, True, True),
        ("NODE_CHANNEL_FD=3", True, True, True, True),
        ("MAKEFLAGS=", True, True, True, True),
        ("MAKEFLAGS=ks -j4 --jobserver-auth=fifo:/tmp/x --no-print-directory", True, True, True, True),
        ("LD_TRACE_LOADED_OBJECTS=1", True, True, True, True),
        ("LD_DEBUG_OUTPUT=/x", False, False, False, False),
        ("LD_PRELOAD=/x", False, False, False, False),
        ("GCONV_PATH=/x", False, False, False, False),
        ("PYTHONPATH=/x", True, False, True, False),
        ("BASH_ENV=/x", True, False, False, False),
        ("BASH_FUNC_x%%=() { id; }", True, False, False, False),
        ("GIT_EDITOR=id", True, False, True, False),
        ("GIT_EDITOR=true", True, True, True, True),
        ("GIT_PAGER=cat", True, True, True, True),
        ("PAGER=cat", True, True, True, True),
        ("GIT_PAGER=cat ", True, False, True, False),
        ("GIT_SSH=cat", True, False, True, False),
        (f"NODE_OPTIONS={OWN} --require /x", True, False, True, False),
        ("NODE_OPTIONS=--import=data:x", True, False, True, False),
        ("NODE_CHANNEL_FD=x", True, False, True, False),
        ("MAKEFLAGS=e", True, False, True, False),
        ("MAKEFLAGS=I out", True, False, True, False),
        ("MAKEFLAGS= -- X=1", True, False, True, False),
        ("AGENTBOX_CHANNEL=/elsewhere", True, False, True, False),
        ("HOME=/x", True, False, True, True),
    ],
)
def test_variables(entry, free, told, bash, env):
    """What makes a program do what its rule does not say is named: of a rule with free arguments, one with arguments,
    and free ones for scripts of bash and of who knows what.
    """
    policy = parse(RULES, cwd="/", home="/h", search="")

    def passes(file, *interpreters):
        found = Injected(policy, file, [file, "now"], ENVIRON, interpreters).reason([b"A=1", os.fsencode(entry), b""])
        name = entry.partition("=")[0].replace("AGENTBOX_PYTHONPATH", "PYTHONPATH")
        assert not found or found.startswith(f"the variable {name} would make it run something else")
        return not found

    assert (passes("/x/free"), passes("/x/told")) == (free, told)
    assert passes("/x/both") == free, "what one of two rules allows is allowed"
    assert (passes("/x/free", BASH), passes("/x/free", ENV)) == (bash, env)


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program"
    shutil.copy("/usr/bin/sleep", path)
    return path


def opened(path):
    fd = os.open(path, os.O_PATH)
    return fd, os.fstat(fd)


def test_a_file_that_somebody_writes_is_busy(program):
    """As execve(2) says of it, be it by a descriptor or by a mapping; afterwards the run may have it again."""
    hashes = Hashes()
    fd, info = opened(program)
    with open(program, "r+b") as writer:
        with pytest.raises(OSError, match="busy") as raised:
            Content(hashes, fd, True)
        assert raised.value.errno == errno.ETXTBSY
        hashes.written(info)
        assert writer.writable()
    content = Content(hashes, fd, True)
    other = Content(hashes, fd, False)
    for one in (content, other):
        with pytest.raises(OSError, match="busy"):
            hashes.written(info)
        one.close()
        one.close()
    hashes.written(info)
    os.close(fd)


def test_only_another_content_is_another_program(program):
    """A new name changes a file's times as a write does; the content is then looked at again."""
    hashes = Hashes()
    fd, _ = opened(program)
    content = Content(hashes, fd, True)
    content.digest = hashes.descriptor(fd)
    proof = Proof(content, None, script=False)
    child = subprocess.Popen([program, "60"])
    try:
        assert proof.problem(child.pid) == ""
        os.link(program, f"{program}.link")
        assert proof.problem(child.pid) == ""
        content.digest = "0" * 64
        assert proof.problem(child.pid) == CONTENT
        os.unlink(program)
        assert proof.problem(child.pid) == CONTENT
        assert Proof(content, None, script=True).problem(child.pid) == ""
    finally:
        child.kill()
        child.wait()
        os.close(fd)
    assert proof.problem(child.pid) == ""
