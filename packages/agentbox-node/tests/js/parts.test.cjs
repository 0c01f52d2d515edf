'use strict';
// The parts that need no supervisor: the hash, the table of hooks, the options that are harmless.
const assert = require('node:assert');
const crypto = require('node:crypto');
const fs = require('node:fs');
const path = require('node:path');
const test = require('node:test');

const source = process.env.AGENTBOX_NODE_JS ?? path.join(__dirname, '../../src/agentbox/node/js');
const p = require(path.join(source, 'primordials.cjs'));

test('the small hash is SHA-256 at every length around its blocks', () => {
  const sha256 = require(path.join(source, 'sha256.cjs'))(p);
  for (const length of [0, 1, 3, 55, 56, 57, 63, 64, 65, 119, 120, 121, 128, 1000, 65536]) {
    const data = crypto.randomBytes(length);
    assert.strictEqual(sha256(data, length), crypto.createHash('sha256').update(data).digest('hex'), `${length}`);
  }
});

test('every hook has its row, and every row its file', () => {
  const files = fs.readdirSync(path.join(source, 'hooks')).filter((name) => !['_base.cjs', 'index.cjs'].includes(name));
  const rows = require(path.join(source, 'hooks/index.cjs')).map(([name]) => `${name}.cjs`);
  assert.deepStrictEqual(files.sort(), rows.sort());
});

test('every file says in its first lines what it holds', () => {
  for (const folder of ['', 'hooks', 'forms']) {
    for (const name of fs.readdirSync(path.join(source, folder)).filter((entry) => entry.endsWith('.cjs'))) {
      const lines = fs.readFileSync(path.join(source, folder, name), 'utf8').split('\n');
      assert.strictEqual(lines[0], "'use strict';", name);
      assert.ok(lines[1].startsWith('// ') && lines[2].startsWith('// '), name);
    }
  }
});

test('options that would let a thread out of the guard are not harmless', () => {
  const isHarmless = require(path.join(source, 'options.cjs'))(p);
  for (const word of ['--no-warnings', '--conditions=dev', '--max-old-space-size=100']) assert.ok(isHarmless(word), word);
  for (const word of ['--expose-internals', '--inspect', '--env-file=x', '--permission', '--no-such']) assert.ok(!isHarmless(word), word);
});

test('every function of node:fs ends in a binding that is judged, or is known to need no judging', () => {
  // A new Node that adds a function to the binding fails here until somebody has said what it is.
  const free = new Set([
    'close', 'read', 'readBuffers', 'fdatasync', 'fsync', 'fstat', 'writeBuffer', 'writeBuffers', 'writeString', // descriptors, opened before
    'internalModuleStat', 'internalModuleReadJSON', 'legacyMainResolve', 'getFormatOfExtensionlessFile', // the loader's look-ups, whose answers are judged
    'FSReqCallback', 'StatWatcher', 'FileHandle',
  ]);
  const hook = fs.readFileSync(path.join(source, 'hooks/fs.cjs'), 'utf8');
  const judged = new Set([...hook.matchAll(/^ {4}(\w+): /gm), ...hook.matchAll(/wrap\(binding, '(\w+)'/g), ...hook.matchAll(/^ {2}stat\('(\w+)'/gm)].map((match) => match[1]));
  process.noDeprecation = true;
  const binding = process.binding('fs');
  const unknown = Object.keys(binding).filter((name) => typeof binding[name] === 'function' && !judged.has(name) && !free.has(name));
  assert.deepStrictEqual(unknown, []);
});

test('every public function that goes around that binding is one that the public hook wraps', () => {
  const around = ['opendir', 'opendirSync', 'openAsBlob', 'openAsBlobSync'];
  const hook = fs.readFileSync(path.join(source, 'hooks/fs_public.cjs'), 'utf8');
  for (const name of around) assert.ok(hook.includes(`wrap(fs, '${name}'`), name);
  const known = new Set([
    ...around, 'access', 'appendFile', 'chmod', 'chown', 'close', 'copyFile', 'cp', 'createReadStream', 'createWriteStream', 'exists', 'fchmod',
    'fchown', 'fdatasync', 'fstat', 'fsync', 'ftruncate', 'futimes', 'glob', 'lchmod', 'lchown', 'link', 'lstat', 'lutimes', 'mkdir', 'mkdtemp',
    'mkdtempDisposable', 'open', 'read', 'readFile', 'readdir', 'readlink', 'readv', 'realpath', 'rename', 'rm', 'rmdir', 'stat', 'statfs', 'symlink',
    'truncate', 'unlink', 'unwatchFile', 'utimes', 'watch', 'watchFile', 'write', 'writeFile', 'writev', 'Dir', 'Dirent', 'Stats', 'ReadStream',
    'WriteStream', 'FileReadStream', 'FileWriteStream', 'Utf8Stream', '_toUnixTimestamp',
  ]);
  const unknown = Object.keys(fs).filter((name) => typeof fs[name] === 'function' && !known.has(name) && !known.has(name.replace(/Sync$/, '')));
  assert.deepStrictEqual(unknown, []);
});

test('lists and sets are made without what the agent can change', () => {
  const { push } = Array.prototype;
  const { add } = Set.prototype;
  const iterate = Array.prototype[Symbol.iterator];
  const found = [];
  let set;
  Object.defineProperty(Array.prototype, '0', { configurable: true, set() {}, get: () => 'other' });
  Array.prototype.push = () => 0;
  Set.prototype.add = function nothing() { return this; };
  Array.prototype[Symbol.iterator] = () => iterate.call([]);
  try {
    p.push(found, 'own');
    set = p.setOf(found);
  } finally {
    delete Array.prototype[0];
    Array.prototype.push = push;
    Set.prototype.add = add;
    Array.prototype[Symbol.iterator] = iterate;
  }
  assert.deepStrictEqual([...found, ...set], ['own', 'own']);
});

test('what is read after the code of the agent has begun uses no iterator of its own', () => {
  const early = ['primordials', 'shim', 'decide', 'report', 'options', 'hooks/fs', 'hooks/process', 'hooks/index'];
  for (const folder of ['', 'hooks', 'forms']) {
    for (const name of fs.readdirSync(path.join(source, folder)).filter((entry) => entry.endsWith('.cjs'))) {
      if (early.includes(path.join(folder, name).slice(0, -4))) continue;
      const text = fs.readFileSync(path.join(source, folder, name), 'utf8');
      assert.doesNotMatch(text, /for \((?:const|let) [^;]* of |new p\.(?:Set|Map)\([^)]|(?:const|let) \[/, name);
    }
  }
});
