"""Headless Chromium, on which Playwright, Puppeteer and Electron rest, prints a page as it does without the sandbox.

Chromium's own sandbox needs namespaces inside the run, which no program of a run may make: it is switched off.
"""

import shutil
import sys

import pytest
from scenes import scenes
from test_real_programs import Scene

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's"),
    pytest.mark.skipif(not CHROMIUM, reason="there is no chromium"),
    pytest.mark.slow,
]
scene = scenes(Scene)
SERVER = r"""
import http.server, os
class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
print(server.server_port, flush=True)
server.serve_forever()
"""
PAGE = '<p id="x">no</p><script>document.getElementById("x").textContent = 6 * 7</script>\n'
SCRIPT = r"""
mkfifo port
"$1" -I -S server.py > port & server=$!
read number < port
rm port
state=$(mktemp -d)
HOME=$state timeout 50 "$2" --headless=new --no-sandbox --disable-gpu --user-data-dir="$state/profile" \
    --virtual-time-budget=2000 --timeout=20000 --dump-dom "http://127.0.0.1:$number/page.html" 2> "$state/said" \
    > "$state/page" || cat "$state/said" >&2
grep 42 "$state/page"
kill $server
rm -rf "$state"
"""
READ = "read: /etc, /var/cache/fontconfig, /usr/share, /proc, /sys/devices\n"


def test_chromium_prints_a_page_of_the_runs_own_server(scene):
    """Its script has run, and what it prints is the same as without the sandbox."""
    scene.files(**{"server.py": SERVER, "page.html": PAGE})
    scene.work(SCRIPT, f"write: .\n{READ}exec: *\n", "/usr/bin/python3", CHROMIUM)
