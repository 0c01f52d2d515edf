"""Ordinary work under fitting policies: the same output and the same files as without agentbox, and a record of it.

Each runs for root and for an ordinary user, in two folders of the same content, one with the sandbox and one without.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile

import pytest
from kit.waiting import PATIENCE
from scenes import scenes, source_folders

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel layers are Linux's")
VOLATILE = (".git", ".npm/", "__pycache__/", ".pytest_cache/", ".package-lock.json", "direct_url.json", "RECORD")
"""What holds times, places or random names."""


class Scene:
    """Two working folders, `bare` and `boxed`, and a user to work in them."""

    def __init__(self, uid):
        self.uid = uid
        self.folder = os.path.realpath(tempfile.mkdtemp(prefix="real-", dir="/tmp"))
        os.chmod(self.folder, 0o755)
        for name in ("bare", "boxed", "state", "home"):
            os.mkdir(f"{self.folder}/{name}")

    @property
    def python(self):
        return sys.executable if self.uid is None else "/usr/bin/python3"

    def files(self, **content):
        """Put files into both folders; their names have `__` for a slash."""
        for folder in ("bare", "boxed"):
            for name, text in content.items():
                path = f"{self.folder}/{folder}/{name.replace('__', '/')}"
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w") as file:
                    file.write(text)

    def work(self, script, policy, *words):
        """Do it in both folders: outputs, files and statuses are the same. Returns the entries of the sandboxed one."""
        self.own()
        bare = self.run("bare", ["bash", "-ec", script, "bash", *words])
        with open(f"{self.folder}/state/p.policy", "w") as file:
            file.write(policy)
        head = [self.python, "-m", "agentbox.cli", "run", "-p", f"{self.folder}/state/p.policy"]
        head += ["-t", f"{self.folder}/state/trace.jsonl", "--", "bash", "-ec", script, "bash", *words]
        boxed = self.run("boxed", head)
        assert bare.returncode == 0, bare.stderr
        assert (boxed.returncode, boxed.stdout) == (bare.returncode, bare.stdout), boxed.stderr
        assert bare.stdout and self.content("boxed") == self.content("bare")
        with open(f"{self.folder}/state/trace.jsonl") as lines:
            return [json.loads(line) for line in lines]

    def run(self, folder, command):
        environ = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": f"{self.folder}/home",
            "LANG": "C.UTF-8",
            "PYTHONPATH": ":".join(source_folders()) if command[0] == self.python else "",
            "TMPDIR": f"{self.folder}/state",
        }
        ids = {} if self.uid is None else {"user": self.uid, "group": self.uid, "extra_groups": []}
        return subprocess.run(
            command, cwd=f"{self.folder}/{folder}", env=environ, capture_output=True, text=True, timeout=PATIENCE, **ids
        )

    def own(self):
        for base, folders, files in os.walk(self.folder):
            for name in (*folders, *files, "."):
                if self.uid is not None:
                    os.chown(f"{base}/{name}", self.uid, self.uid)

    def content(self, folder):
        """What lies in a folder, by name: the text of a file, the target of a link, the mode of both."""
        found = {}
        for base, _, files in os.walk(f"{self.folder}/{folder}"):
            for name in files:
                path = f"{base}/{name}"
                short = path[len(f"{self.folder}/{folder}/") :]
                if not any(part in short for part in VOLATILE):
                    link = os.path.islink(path)
                    with open(os.devnull if link else path, "rb") as file:
                        found[short] = os.readlink(path) if link else file.read(), os.lstat(path).st_mode
        return found

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)


scene = scenes(Scene)


def need(*programs):
    for name in programs:
        if not shutil.which(name):
            pytest.skip(f"{name}: not installed")


def denied(scene, entries):
    """What was refused in the working folder; elsewhere programs ask for much that they do without."""
    targets = [entry["target"] for entry in entries if entry["kind"] == "deny"]
    return [target for target in targets if target.startswith(f"{scene.folder}/boxed")]


def started(entries):
    """The programs by their last names; each entry has the file that ran, and its content's hash."""
    found = [entry["args"] for entry in entries if entry["op"] == "proc.exec" and entry["kind"] == "observe"]
    assert all(len(args["sha256"]) == 64 and os.path.isabs(args["file"]) for args in found)
    return [os.path.basename(args["argv"][0]) for args in found]


def written(entries):
    return {os.path.basename(entry["args"]["path"]) for entry in entries if entry["op"] == "fs.write"}


GIT = """
git clone -q "$1" work
cd work
git config user.name Somebody
git config user.email somebody@example.com
echo two >> file
git status --short
git commit -q -a -m second
git checkout -q -b other
git worktree add -q ../tree HEAD~1
git log --format=%s
git status
cat ../tree/file
git -C ../tree log --format=%an
git gc -q
git fsck --no-progress
git push -q origin HEAD:refs/heads/pushed --force
git ls-remote --heads origin | cut -f2
"""


def upstream(scene):
    """A repository of two commits beside the working folders."""
    made = f"{scene.folder}/upstream"
    for words in (
        ["init", "-q", "-b", "main", "."],
        ["commit", "-q", "--allow-empty", "-m", "first"],
        ["add", "file"],
        ["commit", "-q", "-m", "with a file"],
    ):
        os.makedirs(made, exist_ok=True)
        with open(f"{made}/file", "w") as file:
            file.write("one\n")
        who = ["-c", "user.name=A", "-c", "user.email=a@example.com"]
        subprocess.run(
            ["git", *who, *words], cwd=made, check=True, env={"PATH": os.environ["PATH"], "HOME": scene.folder}
        )
    return made


def test_git(scene):
    """Clone, commit, branch, work tree, housekeeping and push of a local repository."""
    need("git")
    place = upstream(scene)
    entries = scene.work(GIT, f"write: .\nwrite: {place}\nexec: *\n", place)
    assert not denied(scene, entries)
    assert started(entries).count("git") > 10 and {"file", "config.lock"} <= written(entries)


def test_a_pipeline(scene):
    """Sorting, counting and cutting, with redirections and a substitution."""
    scene.files(words="b\na\nb\nc\nb\n", counted="")
    script = """
    sort words | uniq -c | sort -rn | awk '{ print $2, $1 }' | tee counted | head -n 2
    diff <(sort -u words) <(cut -d' ' -f1 counted | sort) && wc -l < counted >> counted
    cat counted
    """
    entries = scene.work(script, "read: .\nwrite: ./counted\nexec: *\n")
    assert not denied(scene, entries) and written(entries) == {"counted"}
    assert {"sort", "uniq", "awk", "tee", "head", "diff", "cut", "wc", "cat"} <= set(started(entries))


def test_make_with_a_compiler(scene):
    """A small program is built, run, changed and built again; what is up to date stays."""
    need("make", "gcc")
    scene.files(
        Makefile="say: say.o\n\tgcc -o say say.o\nsay.o: say.c\n\tgcc -c -o say.o say.c\nclean:\n\trm -f say say.o\n",
    )
    scene.files(**{"say.c": '#include <stdio.h>\nint main(void) { puts("one"); return 0; }\n'})
    script = (
        "make -s; ./say; make; sed -i s/one/two/ say.c; touch -d '+2 seconds' say.c; make -s; ./say; make -s clean; ls"
    )
    entries = scene.work(script, "write: .\nexec: *\nexec: ./say\n")
    assert not denied(scene, entries)
    assert started(entries).count("say") == 2 and {"say.o", "say"} <= written(entries)


SERVER = {
    "python": """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    if asked["method"] == "initialize":
        info = {"name": "notes", "version": "1"}
        result = {"protocolVersion": "2025-06-18", "serverInfo": info, "capabilities": {"tools": {}}}
    elif asked["method"] == "tools/list":
        result = {"tools": [{"name": "read", "inputSchema": {"type": "object"}}]}
    else:
        try:
            text = open(asked["params"]["arguments"]["path"]).read()
            result = {"content": [{"type": "text", "text": text}]}
        except OSError as error:
            result = {"content": [{"type": "text", "text": type(error).__name__}], "isError": True}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
""",
    "node": """
const fs = require('fs');
require('readline').createInterface({ input: process.stdin }).on('line', line => {
  const asked = JSON.parse(line);
  if (asked.id === undefined) return;
  let result;
  if (asked.method === 'initialize') {
    const serverInfo = { name: 'notes', version: '1' };
    result = { protocolVersion: '2025-06-18', serverInfo, capabilities: { tools: {} } };
  } else if (asked.method === 'tools/list') {
    result = { tools: [{ name: 'read', inputSchema: { type: 'object' } }] };
  } else {
    try {
      const text = fs.readFileSync(asked.params.arguments.path, 'utf8');
      result = { content: [{ type: 'text', text }] };
    } catch {
      result = { content: [{ type: 'text', text: 'PermissionError' }], isError: true };
    }
  }
  console.log(JSON.stringify({ jsonrpc: '2.0', id: asked.id, result }));
});
""",
}
CLIENT = """
import json, subprocess, sys
server = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
def ask(number, method, **params):
    message = {"jsonrpc": "2.0", "method": method, "params": params}
    server.stdin.write(json.dumps({**message, "id": number} if number else message) + "\\n")
    server.stdin.flush()
    return json.loads(server.stdout.readline())["result"] if number else None
print(ask(1, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "c", "version": "1"}))
ask(0, "notifications/initialized")
print([tool["name"] for tool in ask(2, "tools/list")["tools"]])
print(ask(3, "tools/call", name="read", arguments={"path": "notes.txt"}))
server.stdin.close()
print(server.wait())
"""


@pytest.mark.parametrize("language", SERVER)
def test_a_server_of_the_model_context_protocol(scene, language):
    """Over standard input and output: what it may read it serves; what it may not is refused to it, and told."""
    program, name = (scene.python, "server.py") if language == "python" else ("node", "server.js")
    need(program)
    scene.files(**{name: SERVER[language], "client.py": CLIENT, "notes.txt": "notes\n"})
    rules = f"read: .\nexec: {program}\nexec: {scene.python}\nexec: *\n"
    entries = scene.work('"$@"', rules, scene.python, "client.py", program, name)
    reads = {os.path.basename(entry["args"]["path"]) for entry in entries if entry["op"] == "fs.read"}
    assert not denied(scene, entries) and {"client.py", "notes.txt", name} <= reads | {name, "client.py"}
    scene.files(**{"client.py": CLIENT.replace("notes.txt", f"{scene.folder}/state/p.policy")})
    scene.own()
    command = [scene.python, "-m", "agentbox.cli", "run", "-p", f"{scene.folder}/state/p.policy", "-t", "t.jsonl", "--"]
    done = scene.run("boxed", [*command, scene.python, "client.py", program, name])
    assert "'isError': True" in done.stdout and "PermissionError" in done.stdout, done.stderr


def test_npm_and_npx(scene):
    """A package of the folder beside is installed without a network, and its command started by npx."""
    need("npm", "npx", "node")
    scene.files(
        **{
            "package.json": '{"name": "app", "version": "1.0.0", "private": true}',
            "tool/package.json": '{"name": "tool", "version": "1.0.0", "bin": {"tool": "cli.js"}}',
            "tool/cli.js": "#!/usr/bin/env node\nconsole.log('tool', process.argv.slice(2).join(' '));\n",
        }
    )
    script = """
    chmod +x tool/cli.js
    npm install --offline --no-audit --no-fund --loglevel=error ./tool > /dev/null
    npx --no-install tool one two
    node -p "require('./node_modules/tool/package.json').version"
    """
    entries = scene.work(script, "write: .\nexec: *\n")
    assert "package-lock.json" in {
        entry["args"]["path"].rpartition("/")[2] for entry in entries if "path" in entry["args"]
    }
    assert not denied(scene, entries)
    assert "node" in started(entries)


def wheel(path):
    """A wheel (PEP 427) of one module."""
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("demo.py", "def hello():\n    return 'hello from demo'\n")
        made.writestr("demo-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
        made.writestr("demo-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        made.writestr(
            "demo-1.0.dist-info/RECORD", "demo.py,,\ndemo-1.0.dist-info/METADATA,,\ndemo-1.0.dist-info/WHEEL,,\n"
        )


def python_with(module, scene):
    """An interpreter of this user that has a module."""
    for candidate in (scene.python, getattr(sys, "_base_executable", ""), "/usr/bin/python3"):
        if scene.uid is not None and not candidate.startswith("/usr/"):
            continue
        if candidate and not subprocess.run([candidate, "-m", module, "--version"], capture_output=True).returncode:
            return candidate
    return pytest.skip(f"{module}: in none of this user's interpreters")


def test_pip(scene):
    """A wheel that lies in the workspace is installed into the workspace and imported from there."""
    python = python_with("pip", scene)
    for folder in ("bare", "boxed"):
        wheel(f"{scene.folder}/{folder}/demo-1.0-py3-none-any.whl")
    script = """
    "$1" -m pip install -q --no-index --disable-pip-version-check --no-compile --root-user-action=ignore \
      --target site ./demo-1.0-py3-none-any.whl
    PYTHONDONTWRITEBYTECODE=1 "$1" -c "import sys; sys.path.insert(0, 'site'); import demo; print(demo.hello())"
    """
    entries = scene.work(script, f"write: .\nexec: {python}\nexec: *\n", python)
    assert "demo.py" in {entry["args"].get("path", "").rpartition("/")[2] for entry in entries} | {
        entry["args"].get("to", "").rpartition("/")[2] for entry in entries
    }
    assert not denied(scene, entries)


def test_pytest(scene):
    """The tests of a small project, one of which fails as it should."""
    python = python_with("pytest", scene)
    scene.files(
        **{
            "adds.py": "def add(a, b):\n    return a + b\n",
            "test_adds.py": "from adds import add\n\ndef test_right(tmp_path):\n    (tmp_path / 'f').write_text('x')\n"
            "    assert add(1, 2) == 3\n\ndef test_wrong():\n    assert add(1, 2) == 4\n",
        }
    )
    script = """
    "$1" -m pytest -q -p no:cacheprovider --no-header test_adds.py | sed -e 's/ in [0-9.]*s.*//'
    """
    entries = scene.work(script, f"write: .\nexec: {python}\nexec: *\n", python)
    reads = {entry["args"]["path"].rpartition("/")[2] for entry in entries if entry["op"] == "fs.read"}
    assert {"adds.py", "test_adds.py"} <= reads
    assert not denied(scene, entries)


DATAGRAMS = """
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 0))
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
client.connect(server.getsockname())
client.send(b"question")
message, sender = server.recvfrom(99)
server.sendto(message.upper(), sender)
client.settimeout(100)
print(client.recv(99).decode())
"""


def test_a_server_answers_a_connected_datagram_socket(scene):
    """The run's loopback is its own, whatever state a socket on it is in."""
    entries = scene.work('/usr/bin/python3 -c "$1"', "write: .\nexec: *\n", DATAGRAMS)
    assert not [entry for entry in entries if entry["kind"] == "deny" and entry["op"].startswith("net.")]


LOCAL_SOCKET = """
const net = require('net');
const server = net.createServer((peer) => peer.end('answer\\n'));
server.listen('server.sock', () => net.connect('server.sock').on('data', (data) => {
  process.stdout.write(data);
  server.close();
}));
"""


def test_a_local_socket_of_node(scene):
    """A write rule allows making the socket's file, a net rule connecting to it; both are recorded."""
    need("node")
    scene.files(**{"server.js": LOCAL_SOCKET})
    entries = scene.work("node server.js", "write: .\nexec: *\nnet: unix:./server.sock\n")
    assert {"net.bind", "net.connect"} <= {entry["op"] for entry in entries if entry["kind"] != "deny"}
    assert not denied(scene, entries)


BY_NAME = {
    "node": """
const server = require('net').createServer((peer) => peer.end('answer\\n')).listen(0, 'localhost', () =>
  require('net').connect(server.address().port, 'localhost').on('data', (data) => {
    process.stdout.write(data);
    server.close();
  }));
""",
    "python3": """
import socket
with socket.create_server(("localhost", 0)) as server, socket.create_connection(server.getsockname()) as client:
    server.accept()[0].sendall(b"answer\\n")
    print(client.recv(99).decode(), socket.gethostbyname("localhost"))
""",
}


@pytest.mark.parametrize("program", BY_NAME)
def test_the_runs_own_loopback_by_name(scene, program):
    """Guards let `localhost` be looked up as the run's name service does, where no rule speaks of the loopback."""
    need(program)
    scene.files(agent=BY_NAME[program])
    entries = scene.work(f"{program} agent", "write: .\nexec: *\nnet: example.com\n")
    assert not [entry for entry in entries if entry["kind"] == "deny" and entry["op"].startswith("net.")]


CLIENTS = """
const dgram = require('dgram');
const server = dgram.createSocket('udp4'), client = dgram.createSocket('udp4');
server.on('message', (text, from) => server.send(String(text).toUpperCase(), from.port, from.address));
client.on('message', (text) => { console.log(String(text)); server.close(); client.close(); });
server.bind(0, '127.0.0.1', () => client.connect(server.address().port, '127.0.0.1', () => client.send('question')));
"""


def test_a_datagram_client_that_binds_itself_to_any_port(scene):
    """What libuv does before it connects or sends needs no rule of its own where the rules speak of the loopback."""
    need("node")
    scene.files(**{"clients.js": CLIENTS})
    entries = scene.work("node clients.js", "write: .\nexec: *\nnet: 127.0.0.1\n")
    assert not [entry for entry in entries if entry["kind"] == "deny" and entry["op"].startswith("net.")]


BOUND = """
import socket, sys
for kind, address, port in ((1, "0.0.0.0", 0), (2, "127.0.0.2", 0), (2, "0.0.0.0", 5300), (2, "0.0.0.0", 0)):
    with socket.socket(socket.AF_INET, kind) as one:
        try:
            one.bind((address, port))
            print("bound")
        except PermissionError:
            print("refused")
"""


@pytest.mark.parametrize("flags", [["-I"], []], ids=["without a guard", "guarded"])
def test_only_a_datagram_socket_that_asks_for_anything_is_bound_without_a_rule(scene, flags):
    """Where the rules speak of the loopback they say all that may listen on it. Without the sandbox all of it works."""
    with open(f"{scene.folder}/state/p.policy", "w") as file:
        file.write("read: .\nexec: *\nnet: 127.0.0.1:5301\n")
    scene.own()
    words = ["/usr/bin/python3", *flags, "-c", BOUND]
    head = [scene.python, "-m", "agentbox.cli", "run", "-p", f"{scene.folder}/state/p.policy"]
    boxed = scene.run("boxed", [*head, "-t", f"{scene.folder}/state/trace.jsonl", "--", *words])
    assert scene.run("bare", words).stdout.split() == ["bound"] * 4
    assert boxed.stdout.split() == [*["refused"] * 3, "bound"], boxed.stderr


REMOVED = """
mkdir -p made/within kept
cd made/within
rm -r ../../made
echo text > ../../kept/file
mv ../../kept/file ../../kept/other
cat ./../../kept/other
ls ../..
test ! -e ../file
cd ../..
"""


def test_names_from_a_folder_that_was_removed(scene):
    """Such a folder has no name any more, and is still somewhere: `..` leads where it lay."""
    entries = scene.work(REMOVED, "write: .\nexec: *\n")
    assert "file" in written(entries)
    assert not denied(scene, entries)


CAPACITY = """
import os
for folder in ("/sys/devices/system/cpu", "/sys/devices/system/node", "/proc/sys/fs/inotify"):
    if os.path.isdir(folder):
        print(folder, len(os.listdir(folder)))
for file in ("/sys/devices/system/cpu/present", "/proc/sys/net/core/somaxconn", "/proc/sys/kernel/cap_last_cap"):
    print(file, open(file).read())
"""


def test_the_machine_s_capacity_and_limits_are_told(scene):
    """Thread pools, servers and watchers ask for them at their start: without a rule and without a denial."""
    entries = scene.work('/usr/bin/python3 -c "$1"', "read: .\nexec: *\n", CAPACITY)
    assert not [entry for entry in entries if entry["kind"] == "deny" and entry["target"].startswith(("/sys", "/proc"))]
