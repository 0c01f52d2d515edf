"""What honest programs see: Node as it is, recorded; children, threads and modules of every kind under the same guard."""
# ruff: noqa: E501
# Programs in JavaScript keep their lines.

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys

import pytest
from kit.waiting import PATIENCE

from agentbox.guard.kernel import landlock, netns, seccomp

MISSING = netns.NETNS.probe() or landlock.LANDLOCK.probe() or seccomp.SECCOMP.probe()


def test_reads_and_writes_are_recorded(scene):
    """A read carries the hash of what was read, a write what was there before."""
    done = scene.box(
        "const fs = require('fs'); fs.readFileSync('data/ok.txt'); fs.writeFileSync('out/a', 'x'); fs.appendFileSync('out/a', 'y');\n"
        "fs.mkdirSync('out/d/e', { recursive: true }); fs.renameSync('out/a', 'out/b'); fs.rmSync('out/d', { recursive: true });"
    )
    assert done.returncode == 0, done.stderr
    ws = str(scene.ws)
    steps = scene.steps("observe")
    ops = [op for op, _ in steps]
    assert ops[:6] == ["fs.read", "fs.write", "fs.write", "fs.mkdir", "fs.mkdir", "fs.rename"]
    assert set(ops[6:]) <= {"fs.rmdir", "fs.list"}
    assert {args["path"] for op, args in steps[6:] if op == "fs.rmdir"} == {f"{ws}/out/d", f"{ws}/out/d/e"}
    assert steps[0][1]["path"] == f"{ws}/data/ok.txt"
    assert steps[0][1]["size"] == 8
    assert steps[0][1]["sha256"] == hashlib.sha256(b"allowed\n").hexdigest()
    assert steps[1][1] == {"path": f"{ws}/out/a", "flags": "w", "absent": True}
    assert steps[2][1] == {"path": f"{ws}/out/a", "flags": "a", "size": 1}
    assert steps[5][1] == {"path": f"{ws}/out/a", "to": f"{ws}/out/b"}


def test_large_files_have_the_right_hash(scene):
    """A file that is hashed in pieces has the sha256 that sha256sum would print."""
    data = os.urandom(3_000_001)
    (scene.ws / "data" / "large").write_bytes(data)
    assert scene.box("require('fs').readFileSync('data/large')").returncode == 0
    assert scene.steps("observe")[0][1]["sha256"] == hashlib.sha256(data).hexdigest()


def test_missing_files_are_missing(scene):
    """What is not there fails as it always does, and is no denial."""
    done = scene.box(
        "const fs = require('fs'); const out = [];\n"
        "try { fs.readFileSync(process.env.OUTSIDE + '/none') } catch (e) { out.push(e.code) }\n"
        "out.push(fs.existsSync('/none'), fs.statSync('/none', { throwIfNoEntry: false }) === undefined);\n"
        "fs.promises.readFile('data/none').catch((e) => console.log(JSON.stringify([...out, e.code])))"
    )
    assert json.loads(done.stdout) == ["ENOENT", False, True, "ENOENT"]
    assert scene.steps("deny") == []


def test_a_folder_that_is_there_is_no_missing_rule(scene):
    """Making it fails as it always does, and is no denial: a rule for it would open all that is in the folder."""
    done = scene.box(
        "const fs = require('fs'); fs.mkdirSync('data', { recursive: true });\n"
        "const code = (path) => { try { fs.mkdirSync(path) } catch (e) { return e.code } };\n"
        "console.log(JSON.stringify(['data', '.', '/etc', 'other'].map(code)))"
    )
    assert json.loads(done.stdout) == ["EEXIST", "EEXIST", "EEXIST", "EACCES"]
    assert [args["path"] for _, args in scene.steps("deny")] == [f"{scene.ws}/other"]


def test_es_modules_take_guarded_functions(scene):
    """Named and namespace imports are the guarded functions, whenever they are taken."""
    scene.write("export const two = 2;\n", "lib.mjs")
    scene.rules.append("read: ./lib.mjs")
    done = scene.box(
        "import { readFileSync } from 'node:fs'; import * as fsp from 'node:fs/promises'; import { two } from './lib.mjs';\n"
        "let refused = 0; const secret = process.env.OUTSIDE + '/secret.txt';\n"
        "try { readFileSync(secret) } catch { refused += 1 }\n"
        "await fsp.readFile(secret).catch(() => { refused += 1 });\n"
        "try { (await import('node:fs')).openSync(secret) } catch { refused += 1 }\n"
        "console.log(refused, two)",
        name="agent.mjs",
    )
    assert done.stdout == "3 2\n", done.stderr


def test_a_worker_is_guarded_and_recorded(scene):
    """A thread reads what the policy allows, in a lane of its own."""
    done = scene.box(
        "const { Worker } = require('worker_threads');\n"
        "new Worker(\"console.log(require('fs').readFileSync('data/ok.txt', 'utf8'))\", { eval: true })"
    )
    assert done.stdout.strip() == "allowed", done.stderr
    lanes = {entry["lane"] for entry in scene.entries() if entry["op"] == "fs.read"}
    assert lanes == {"0.1"}
    assert [args["process"] for op, args in scene.steps("meta") if op == "process.start"] == [0]


def test_child_programs_are_guarded_whatever_their_language(scene):
    """A Node child of a Node agent and a Python child of it are both refused what the agent is refused."""
    scene.rules += [f"exec: {os.path.realpath(scene.node)}", f"exec: {os.path.realpath(sys.executable)}"]
    scene.write(
        "const cp = require('child_process'); const secret = process.env.OUTSIDE + '/secret.txt';\n"
        "const run = (...a) => { const r = cp.spawnSync(...a, { encoding: 'utf8', env: { OUTSIDE: process.env.OUTSIDE, PATH: process.env.PATH } });\n"
        "  console.log(/denied/.test(r.stderr), r.status) };\n"
        "run(process.execPath, ['-e', `require('fs').readFileSync('${secret}')`]);\n"
        f"run({os.path.realpath(sys.executable)!r}, ['-c', `open('${{secret}}')`]);"
    )
    done = scene.run("agent.cjs")
    assert done.stdout.split() == ["true", "1", "true", "1"], (done.stdout, done.stderr)
    runtimes = [args["runtime"] for op, args in scene.steps("meta") if op == "process.start"]
    assert runtimes == ["node", "node", "python"]


def test_a_node_child_of_a_python_agent_is_guarded(scene):
    """The Python guard passes on what brings the Node guard in, and refuses options that would keep it out."""
    scene.rules.append(f"exec: {os.path.realpath(scene.node)}")
    program = scene.ws / "agent.py"
    program.write_text(
        "import os, subprocess, sys\n"
        f"node = {os.path.realpath(scene.node)!r}\n"
        'code = \'require("fs").readFileSync(process.env.OUTSIDE + "/secret.txt")\'\n'
        "for env in (None, {'OUTSIDE': os.environ['OUTSIDE']}):\n"
        "    done = subprocess.run([node, '-e', code], env=env, capture_output=True, text=True)\n"
        "    print('denied' in done.stderr, done.returncode)\n"
        "try:\n"
        "    subprocess.run([node, '--expose-internals', '-e', '0'])\n"
        "except PermissionError as error:\n"
        "    print('must run guarded' in str(error))\n"
    )
    done = scene.agentbox("run", "--layers", "guard", "--", sys.executable, "agent.py")
    assert done.stdout.split() == ["True", "1", "True", "1", "True"], (done.stdout, done.stderr)


def test_allowed_programs_and_names_work(scene):
    """exec with output, and a look-up of an allowed name that leads to the loopback."""
    scene.rules += ["exec: echo", "net: localhost"]
    done = scene.box(
        "const cp = require('child_process'); console.log(cp.execFileSync('echo', ['hi']).toString().trim());\n"
        "require('dns').promises.lookup('localhost').then((r) => console.log(r.address))"
    )
    assert done.stdout.split()[0] == "hi"
    assert done.stdout.split()[1] in ("127.0.0.1", "::1"), done.stderr


def test_a_child_may_be_told_not_to_ask(scene):
    """A pager that only says what it gets goes with any program, and any with one that may be told anything."""
    scene.rules.append("exec: echo")
    done = scene.box(
        "const cp = require('child_process'); process.env.GIT_EDITOR = 'true';\n"
        "for (const pager of ['cat', './cat']) {\n"
        "  const env = { ...process.env, GIT_PAGER: pager };\n"
        "  console.log(cp.spawnSync('echo', ['told'], { env, encoding: 'utf8' }).stdout ?? 'refused');\n"
        "}"
    )
    assert done.stdout.split() == ["told", "told"], done.stderr


def test_an_allowed_server_and_its_client(scene):
    """A server on an allowed port, fetch and http.get to it; another port is refused with a reason."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    scene.rules.append(f"net: 127.0.0.1:{port}")
    done = scene.box(
        "const http = require('http');\n"
        f"const server = http.createServer((q, s) => s.end('pong')).listen({port}, '127.0.0.1', async () => {{\n"
        f"  console.log(await (await fetch('http://127.0.0.1:{port}/')).text());\n"
        f"  await fetch('http://127.0.0.1:{port + 1 if port < 65535 else 1024}/').catch((e) => console.log(e.cause.code, e.cause.fix));\n"
        "  process.exit(0) })"
    )
    assert done.stdout.split("\n")[0] == "pong", done.stderr
    assert done.stdout.split("\n")[1].startswith("EACCES net: 127.0.0.1:"), done.stdout


def test_a_server_on_a_local_socket_and_its_client(scene):
    """A write rule allows making the socket's file, a net rule connecting to it, under the guard alone as well."""
    scene.rules.append(f"net: unix:{scene.ws}/out/server.sock")
    done = scene.box(
        "const net = require('net');\n"
        "const server = net.createServer((peer) => peer.end('pong')).listen('out/server.sock', () =>\n"
        "  net.connect('out/server.sock').on('data', (data) => { console.log(String(data)); server.close() }))"
    )
    assert done.stdout == "pong\n", done.stderr
    assert {"net.bind", "net.connect"} <= {op for op, _ in scene.steps("observe")}


def test_observe_refuses_nothing_and_says_so(scene):
    """--observe lets a forbidden read through and records what would have been denied."""
    scene.write("console.log(require('fs').readFileSync(process.env.OUTSIDE + '/secret.txt', 'utf8'))")
    done = scene.agentbox("run", "--layers", "guard", "--observe", "--", scene.node, "agent.cjs")
    assert done.stdout == "secret\n\n"
    assert [op for op, _ in scene.steps("deny")] == ["fs.read"]


def test_patched_functions_look_like_node_s(scene):
    """Names, lengths, promisify symbols and argument checks are Node's own."""
    done = scene.box(
        "const fs = require('fs'), cp = require('child_process'), { promisify } = require('util');\n"
        "let code; try { fs.readFileSync({}) } catch (e) { code = e.code }\n"
        "console.log(fs.readFileSync.name, fs.opendir.length >= 2, typeof fs.realpathSync.native, typeof cp.exec[promisify.custom], code)"
    )
    assert done.stdout.split() == ["readFileSync", "true", "function", "function", "ERR_INVALID_ARG_TYPE"]


def test_a_bin_link_of_a_local_package_runs(scene):
    """A tool of node_modules is started by its link, reads its own package without a rule, and answers on stdio."""
    package = scene.ws / "node_modules" / "tool"
    package.mkdir(parents=True)
    (package / "package.json").write_text('{"name": "tool", "version": "1.0.0", "main": "lib.js", "bin": "cli.js"}')
    (package / "lib.js").write_text("exports.answer = (line) => ({ tools: [line.trim()] });\n")
    cli = package / "cli.js"
    cli.write_text(
        "#!/usr/bin/env node\nconst { answer } = require('tool');\n"
        "process.stdin.setEncoding('utf8').on('data', (line) => console.log(JSON.stringify(answer(line))));\n"
    )
    cli.chmod(0o755)
    links = scene.ws / "node_modules" / ".bin"
    links.mkdir()
    (links / "tool").symlink_to("../tool/cli.js")
    (scene.ws / "agentbox.policy").write_text("read: ./data\n")
    for layers in ("guard", "auto"):
        done = subprocess.run(
            [sys.executable, "-m", "agentbox.cli", "run", "--layers", layers, "--", scene.node, "node_modules/.bin/tool"],
            input="list\n", cwd=scene.ws, env=scene.environ(), capture_output=True, text=True, timeout=PATIENCE,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (0, '{"tools":["list"]}\n'), done.stderr


@pytest.mark.parametrize("layers", ["auto", "guard"])
def test_a_link_to_a_script_is_its_file(scene, layers):
    """A CommonJS file reached by a link finds what is beside the file, as program and as module, whatever was loaded before."""
    (scene.ws / "tool").mkdir()
    scene.write("require('./beside.js'); console.log(__filename);\n", "tool/cli.js")
    scene.write("console.log('beside');\n", "tool/beside.js")
    (scene.ws / "link.js").symlink_to("tool/cli.js")
    # Node remembers this folder from here on, and does not look at it again.
    scene.write("require('fs').readFileSync('data/ok.txt', 'utf8');\n", "before.cjs")
    scene.write("require('./before.cjs'); require('./link.js');\n", "agent.cjs")
    scene.rules.append("read: .")
    expected = f"beside\n{scene.ws}/tool/cli.js\n"
    for words in (["link.js"], ["--require", "./before.cjs", "link.js"], ["agent.cjs"]):
        assert scene.bare(*words).stdout == expected
        done = scene.run(*words, layers=layers)
        assert (done.returncode, done.stdout) == (0, expected), (words, done.stderr)


@pytest.mark.parametrize("layers", ["auto", "guard"])
def test_the_test_runner_runs_its_files(scene, layers):
    """`node --test` looks at all of the folder, the trace in it too, and gives its children options of its own."""
    scene.write(
        "require('node:test')('adds', () => require('assert').equal(require('fs').readdirSync('data').length, 1));\n",
        "a.test.js",
    )
    assert scene.bare("--test").returncode == 0
    scene.rules += ["read: .", f"exec: {scene.node}"]
    done = scene.run("--test", layers=layers)
    assert (done.returncode, scene.steps("deny")) == (0, []), done.stdout + done.stderr
    assert "pass 1" in done.stdout
    guarded = [entry["pid"] for entry in scene.entries() if entry["op"] == "process.start"]
    assert len(set(guarded)) == 2  # the runner and the file's own process


def test_what_the_rules_open_may_be_looked_at_but_not_the_record_read(scene):
    """The trace's size and times are free where a rule opens its folder, as for any program; nothing else of it is."""
    scene.rules.append("read: .")
    done = scene.box(
        "const fs = require('fs'); const codes = [fs.statSync('trace.jsonl').isFile(), fs.existsSync('trace.jsonl')];\n"
        "const attempt = (run) => { try { run(); codes.push('done') } catch (error) { codes.push(error.code) } };\n"
        "attempt(() => fs.readFileSync('trace.jsonl')); attempt(() => fs.appendFileSync('trace.jsonl', 'x'));\n"
        "attempt(() => fs.readFileSync(`/proc/self/fd/${fs.openSync('trace.jsonl', 0o10000000)}`)); console.log(codes.join())"
    )
    assert done.stdout == "true,true,EACCES,EACCES,EACCES\n", done.stderr


@pytest.mark.parametrize("layers", ["auto", "guard"])
def test_the_record_may_be_watched_where_a_rule_opens_its_folder(scene, layers):
    """Tools watch a folder file by file (chokidar). The names in the blobs' folder are told to nobody."""
    if layers == "auto" and MISSING:
        pytest.skip(f"kernel layers: {MISSING}")
    (scene.ws / "blobs").mkdir()
    code = (
        "const fs = require('fs'); const codes = [];\n"
        "const attempt = (run) => { try { run(); codes.push('done') } catch (error) { codes.push(error.code) } };\n"
        "for (const name of ['trace.jsonl', 'blobs']) {\n"
        "  attempt(() => fs.watch(name).close()); attempt(() => fs.readdirSync(name)); }\n"
        "attempt(() => fs.readFileSync('trace.jsonl')); attempt(() => fs.appendFileSync('trace.jsonl', 'x'));\n"
        "console.log(codes.join());\n"
    )
    agent = str(scene.write(code))
    scene.trace.touch()
    assert scene.bare(agent).stdout == "done,ENOTDIR,done,done,done,done\n"
    scene.trace.unlink()
    done = scene.run(agent, layers=layers)
    assert done.stdout == "EACCES,EACCES,EACCES,EACCES,EACCES,EACCES\n", done.stderr
    assert [op for op, _ in scene.steps("deny")][:2] == ["fs.list", "fs.list"]
    scene.rules.append("read: .")
    done = scene.run(agent, layers=layers)
    blobs = "done" if layers == "auto" else "EACCES"
    assert done.stdout == f"done,EACCES,{blobs},EACCES,EACCES,EACCES\n", done.stderr


@pytest.mark.parametrize("layers", ["auto", "guard"])
def test_the_runs_own_dev_shm_needs_no_rule(scene, layers):
    """Under the kernel layers; under the guard alone it is the machine's, and denied as any other folder."""
    if layers == "auto" and MISSING:
        pytest.skip(f"kernel layers: {MISSING}")
    path = f"/dev/shm/agentbox-{os.getpid()}"
    code = f"""
        const fs = require("fs");
        try {{
          fs.writeFileSync("{path}", "inside");
          console.log(fs.readFileSync("{path}", "utf8"), fs.readdirSync("/dev/shm").length);
        }} catch (error) {{ console.log(error.code); }}
    """
    done = scene.run(str(scene.write(code)), layers=layers)
    assert done.stdout == ("inside 1\n" if layers == "auto" else "EACCES\n"), done.stderr
    assert not os.path.exists(path)
    told = [args["path"] for op, args in scene.steps("observe", "deny") if op == "fs.write"]
    assert told == [path.replace("/dev/shm", "$SHM") if layers == "auto" else path]


@pytest.mark.parametrize("layers", ["auto", "guard"])
@pytest.mark.parametrize("reads", [0, 1, 2])
def test_a_blob_of_a_file_is_one_read_however_often_it_is_read_itself(scene, reads, layers):
    """Its file is opened when it is read, or not at all; the step is where it was made."""
    if layers == "auto" and MISSING:
        pytest.skip(f"kernel layers: {MISSING}")
    program = f"const blob = await require('fs').openAsBlob('data/ok.txt'); for (let n = 0; n < {reads}; n++) await blob.text()"
    agent = str(scene.write(f"(async () => {{ {program}; console.log(blob.size) }})()"))
    assert scene.run(agent, layers=layers).stdout == "8\n"
    told = [step for step in scene.entries() if step["kind"] == "observe" and step["src"] != "kernel"]
    assert [(step["op"], step["args"]["path"]) for step in told] == [("fs.read", str(scene.ws / "data" / "ok.txt"))]
    for held in ("auto", "guard"):
        again = scene.agentbox("replay", "--layers", held, "--", scene.node, agent)
        assert again.returncode == 0, again.stderr
