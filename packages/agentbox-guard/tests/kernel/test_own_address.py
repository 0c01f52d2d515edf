"""A name that leads to this machine's own public address reaches nothing there, unless a rule names the address."""

import json
import os
import shutil
import subprocess
import sys

import pytest
from kit.waiting import PATIENCE
from scenes import source_folders
from test_sockets import scene  # noqa: F401 (a fixture)

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a machine another address"),
    pytest.mark.skipif(not all(map(shutil.which, ("ip", "unshare", "setpriv"))), reason="there is no ip or util-linux"),
]

MACHINE = """
set -e
ip link set lo up
ip addr add 93.184.216.34/32 dev lo
ip -6 addr add 2606:2800:21f::7/128 dev lo nodad
mount --bind "$1/hosts" /etc/hosts
shift
exec "$@"
"""
"""A network and a mount namespace in which public addresses are this machine's, and names lead there."""

HOSTS = "127.0.0.1 localhost\n93.184.216.34 four.example\n2606:2800:21f::7 six.example\n"

SERVICE = """
import os, socket, subprocess, sys, threading
def serve(family, address):
    one = socket.create_server((address, 9000), family=family)
    def answer():
        while True:
            connection, _ = one.accept()
            connection.send(b"service")
            connection.close()
    threading.Thread(target=answer, daemon=True).start()
serve(socket.AF_INET, "0.0.0.0")
serve(socket.AF_INET6, "::")
sys.exit(subprocess.run(sys.argv[1:], timeout=50).returncode)
"""

CLIENT = """
import json, socket
told = {}
for host in ("four.example", "six.example", "93.184.216.34"):
    try:
        with socket.create_connection((host, 9000), timeout=100) as one:
            told[host] = one.recv(99).decode()
    except OSError as error:
        told[host] = error.errno
print(json.dumps(told))
"""

OWN = """
import json, sys
from agentbox.guard.ownaddress import is_own
print(json.dumps([is_own(address) for address in sys.argv[1:]]))
"""


def on_machine(scene, code, *arguments, rules=None):  # noqa: F811
    """What `code` prints on that machine, beside its service; with `rules` under agentbox."""
    with open(f"{scene.folder}/hosts", "w") as file:
        file.write(HOSTS)
    command = [scene.python, "-c", code, *arguments]
    if rules is not None:
        with open(f"{scene.folder}/p.policy", "w") as file:
            file.write(rules)
        options = ["-q", "-p", f"{scene.folder}/p.policy", "-t", f"{scene.folder}/state/trace.jsonl"]
        command = [scene.python, "-m", "agentbox.cli", "run", *options, "--", *command]
    if scene.uid is not None:
        ids = [f"--reuid={scene.uid}", f"--regid={scene.uid}", "--clear-groups"]
        command = ["setpriv", *ids, *command]
    service = [sys.executable, "-c", SERVICE, *command]
    environ = {**os.environ, "TMPDIR": f"{scene.folder}/state", "PYTHONPATH": ":".join(source_folders())}
    whole = ["unshare", "-n", "-m", "sh", "-c", MACHINE, "sh", scene.folder, *service]
    done = subprocess.run(whole, cwd=scene.folder, env=environ, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.attempt("N6")
def test_a_name_never_leads_to_this_machines_own_address(scene):  # noqa: F811
    """Not by the name and not by the address that it has, with a record of why; a rule for the address opens it."""
    hosts = ("four.example", "six.example", "93.184.216.34")
    assert on_machine(scene, CLIENT) == dict.fromkeys(hosts, "service")
    found = on_machine(scene, CLIENT, rules="net: four.example, six.example\n")
    assert set(found) == set(hosts) and not [told for told in found.values() if type(told) is str]
    with open(f"{scene.folder}/state/trace.jsonl") as file:
        text = file.read()
    for address in ("93.184.216.34", "2606:2800:21f::7"):
        assert f"it leads to {address} (this machine), which needs a rule of its own" in text
    rules = "net: four.example, six.example, 93.184.216.34:9000, [2606:2800:21f::7]\n"
    assert on_machine(scene, CLIENT, rules=rules) == dict.fromkeys(hosts, "service")


def test_the_kernel_knows_which_addresses_are_its_own(scene):  # noqa: F811
    """Loopback, an interface's, groups and broadcasts are; what has no way at all is not, and fails by itself."""
    own = ("127.0.0.1", "127.9.9.9", "::1", "93.184.216.34", "2606:2800:21f::7")
    assert on_machine(scene, OWN, *own) == [True] * 5
    assert on_machine(scene, OWN, "93.184.216.35", "2606:2800:21f::8", "8.8.8.8") == [False] * 3
    assert on_machine(scene, OWN, "no address") == [True]
