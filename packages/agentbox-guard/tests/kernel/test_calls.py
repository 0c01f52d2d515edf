"""The attempts of calls.py: each works without the sandbox, where the machine lets it, and none within it."""

import os
import sys
import tempfile

import pytest
from scenes import scenes
from test_battery import Scene

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")

PRIVILEGED = {
    "f10_handle", "n8_packet_socket", "n8_raw_socket", "n8_key_socket", "n8_netlink_of_audit", "p1_priority",
    "p5_push_input", "p5_push_input_high_bits",
}  # fmt: skip
"""What the kernel keeps from an ordinary user as well."""
PERHAPS = {
    "f10_handle", "n8_algorithm_socket", "n8_key_socket", "n8_lite_socket", "n8_netlink_of_audit", "n8_packet_socket",
    "n8_ping_socket", "n8_sctp_socket", "n8_smc_socket", "n8_vsock_socket", "p1_compare", "p5_call_of_i386",
    "p5_call_of_x32", "p5_console_request",
}  # fmt: skip
"""What depends on how the kernel is built and set."""


class Calls(Scene):
    script = "calls.py"

    def __init__(self, uid):
        descriptor, self.temporary = tempfile.mkstemp(dir="/tmp")
        os.write(descriptor, b"the secret\n")
        os.fchmod(descriptor, 0o644)
        os.close(descriptor)
        super().__init__(uid)

    def prepare(self):
        os.mkdir(f"{self.folder}/outside/empty")
        self.facts["temporary"] = self.temporary

    def close(self):
        super().close()
        os.unlink(self.temporary)


scene = scenes(Calls)


def works(results):
    return {name for name, why in results.items() if not why}


def test_each_call_works_without_the_sandbox(scene):
    """But for what the kernel keeps from this user, or has not: that proves nothing of the sandbox, and is named."""
    results, _ = scene.run(False)
    failed = set(results) - works(results)
    groups = {name for name in failed if not name.startswith("p6_")}
    assert groups <= (PERHAPS if scene.uid is None and os.geteuid() == 0 else PERHAPS | PRIVILEGED), results
    considered = {name for name in works(results) if name.startswith("p6_")}
    assert len(considered) > (20 if scene.uid is None and os.geteuid() == 0 else 10), results
    assert scene.outside() != scene.before and scene.servers.hits


@pytest.mark.attempt("F6", "F9", "F10", "F12", "N8", "P1", "P5", "P6")
def test_no_call_works_in_the_sandbox(scene):
    """None works, nothing outside has changed, nobody outside was reached, and what was tried is told."""
    results, said = scene.run(True)
    assert len(results) > 60 and works(results) == set(), said
    assert scene.outside() == scene.before and scene.servers.hits == []
    denied = [entry for entry in scene.trace() if entry["kind"] == "deny"]
    told = {entry["args"].get("name", "") for entry in denied if entry["op"] == "sys.call"}
    handed = {name[3:] for name in results if name.startswith("p6_") and name != "p6_clone3"}
    assert {"open_by_handle_at", "process_vm_readv", "kcmp"} | handed <= told
    targets = {entry["target"] for entry in denied}
    assert {f"{scene.folder}/outside/{name}" for name in ("victim", "node", "fifo", "symlink", "bound")} <= targets
    assert {f"{scene.folder}/secret", scene.temporary, "/run"} <= targets
    assert all(entry["op"] and entry["target"] and entry["reason"] for entry in denied)
