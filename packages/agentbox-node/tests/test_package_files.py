"""With the guard alone: what a package.json outside of all rules says does not come out of module look-ups, which
native code makes. With the kernel layers its opening is refused like any other.
"""

from __future__ import annotations

import json

import pytest

PACKAGE = {
    "name": "outside-pkg",
    "main": "./TOLD-main",
    "exports": {"./a": "./TOLD-exports.js"},
    "imports": {"#x": "./TOLD-imports.js"},
}
WAYS = {
    "a main that is missing": "require.resolve(out + '/pkg')",
    "the same, as a module": "require(out + '/pkg/.')",
    "over parts of the way": "require.resolve(out + '/x/../pkg')",
    "Module._findPath": "m._findPath('./pkg', [out])",
    "its own name": "m.createRequire(out + '/pkg/x.js').resolve('outside-pkg/a')",
    "its own name, not exported": "m.createRequire(out + '/pkg/x.js').resolve('outside-pkg/b')",
    "its imports": "m.createRequire(out + '/pkg/x.js').resolve('#x')",
    "what it does not import": "m.createRequire(out + '/pkg/x.js').resolve('#y')",
    "an installed package": "m.createRequire(out + '/pkg/x.js').resolve('dep/a')",
    "what that does not export": "m.createRequire(out + '/pkg/x.js').resolve('dep/b')",
    "a module of the agent's making": (
        "m._resolveFilename('#y', { get filename() { return out + '/pkg/x.js' }, paths: [] })"
    ),
    "the folder of a prompt": (
        "((process.cwd = () => out + '/pkg'), m._resolveFilename('outside-pkg/b', { id: '<repl>', paths: [] }))"
    ),
    "a changed node:path": """((r) => { path.resolve = (...a) => a.join().includes('zzz')
        ? out + '/pkg' + (a.at(-1) === 'package.json' ? '/package.json' : '') : r(...a);
        try { return require.resolve('./data/zzz') } finally { path.resolve = r } })(path.resolve)""",
}
SCRIPT = """
const m = require('module'), path = require('path'), fs = require('fs'), out = process.env.OUTSIDE;
let told;
try { told = String(%s) } catch (error) { told = error.code + ' ' + error.message }
console.log(/TOLD|not defined|not exported/.test(told) ? 'told' : 'kept', told);
"""


@pytest.fixture
def outside(scene):
    for folder in ("pkg", "pkg/node_modules/dep"):
        (scene.outside / folder).mkdir(parents=True)
        (scene.outside / folder / "package.json").write_text(json.dumps(PACKAGE))
    (scene.outside / "x").mkdir()
    return scene


@pytest.mark.parametrize("way", WAYS)
def test_no_member_of_a_package_outside_is_told(outside, way):
    """By no way to ask for it; without the sandbox each tells something."""
    outside.write(SCRIPT % WAYS[way])
    assert outside.bare("agent.cjs").stdout.startswith("told")
    for layers in ("guard", "auto"):
        done = outside.run("agent.cjs", layers=layers)
        assert done.stdout.startswith("kept"), (layers, done.stdout, done.stderr)


def test_the_refusal_names_the_file_and_is_recorded(outside):
    """As that of any other read; the line that it suggests opens it."""
    outside.write(SCRIPT % WAYS["a main that is missing"])
    file = outside.outside / "pkg/package.json"
    done = outside.run("agent.cjs")
    assert f"fs.read denied: {file}" in done.stdout
    (denied,) = [entry for entry in outside.entries() if entry["kind"] == "deny"]
    assert (denied["op"], denied["target"]) == ("fs.read", str(file))
    outside.rules.append(denied["fix"])
    assert outside.run("agent.cjs").stdout.startswith("told")


def test_packages_that_may_be_read_are_found(scene):
    """By name, from a folder below, over a main, an index, exports, imports and the package's own name, though a
    package.json above them all may not be read.
    """
    (scene.base / "package.json").write_text('{"name": "above", "main": "./x.js"}')
    files = {
        "data/package.json": '{"name": "own", "exports": {"./e": "./e.js"}, "imports": {"#i": "./i.js"}}',
        "data/e.js": "module.exports = 'e'",
        "data/i.js": "module.exports = 'i'",
        "data/plain/index.js": "module.exports = 'index'",
        "data/node_modules/main/package.json": '{"main": "./lib/m"}',
        "data/node_modules/main/lib/m.js": "module.exports = 'main'",
        "data/node_modules/@s/exp/package.json": '{"exports": {".": "./x.cjs"}}',
        "data/node_modules/@s/exp/x.cjs": "module.exports = 'exp'",
        "data/ask.js": "const names = ['own/e', '#i', './plain', 'main', '@s/exp', 'nothing', 'above'];\n"
        "module.exports = names.map((n) => {\n  try { return require(n) } catch (error) { return error.code } })",
    }
    for name, text in files.items():
        (scene.ws / name).parent.mkdir(parents=True, exist_ok=True)
        (scene.ws / name).write_text(text)
    scene.write("console.log(require('./data/ask.js').join())")
    told = "e,i,index,main,exp,MODULE_NOT_FOUND,MODULE_NOT_FOUND\n"
    assert scene.bare("agent.cjs").stdout == told
    for layers in ("guard", "auto"):
        done = scene.run("agent.cjs", layers=layers)
        assert done.stdout == told, (layers, done.stderr)
        assert not [entry for entry in scene.entries() if entry["kind"] == "deny"]
