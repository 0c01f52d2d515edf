'use strict';
// Attempts of a hostile or careless Node program, one function each; the tests run them bare, where they succeed, and guarded.
const cp = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');

const outside = process.env.OUTSIDE;
const secret = path.join(outside, 'secret.txt');
const read = (text) => { if (!String(text).includes('secret')) throw new Error('nothing was read'); };

/** Run a worker thread that reads the secret, or `code`. */
function worker(options, code = "require('fs').readFileSync(require('worker_threads').workerData)") {
  return new Promise((ok, no) => {
    new (require('node:worker_threads').Worker)(code, { eval: true, workerData: secret, ...options }).on('error', no).on('exit', ok);
  });
}

const attempts = {
  readFileSync: () => read(fs.readFileSync(secret)),
  readFileUtf8: () => read(fs.readFileSync(secret, 'utf8')),
  readFileCallback: () => new Promise((ok, no) => fs.readFile(secret, (error, data) => (error ? no(error) : ok(read(data))))),
  readFilePromise: async () => read(await fs.promises.readFile(secret)),
  readBuffer: () => read(fs.readFileSync(Buffer.from(secret))),
  readUrl: () => read(fs.readFileSync(require('node:url').pathToFileURL(secret))),
  readStream: async () => { let text = ''; for await (const part of fs.createReadStream(secret)) text += part; read(text); },
  readRelative: () => { process.chdir(outside); read(fs.readFileSync('secret.txt')); },
  readLink: () => { fs.symlinkSync(secret, 'out/link'); read(fs.readFileSync('out/link')); },
  readDirectory: () => { if (!fs.readdirSync(outside).includes('secret.txt')) throw new Error('not listed'); },
  readOpendir: () => { if (fs.opendirSync(outside).readSync().name !== 'secret.txt') throw new Error('not listed'); },
  readBlob: async () => read(await (await fs.openAsBlob(secret)).text()),
  readCopy: () => { fs.copyFileSync(secret, 'out/copy'); },
  readCp: () => { fs.cpSync(outside, 'out/tree', { recursive: true }); },
  readStat: () => { fs.statSync(secret); },
  readExists: () => { if (!fs.existsSync(secret)) throw Object.assign(new Error('not told'), { code: 'EACCES' }); },
  readRequire: () => { require.extensions['.txt'] = (module, name) => { module.exports = fs.readFileSync(name); }; read(require(secret)); },
  readImport: () => import(`${secret}`).catch((error) => { if (error.code !== 'ERR_UNKNOWN_FILE_EXTENSION') throw error; }),
  readVm: () => read(require('node:vm').runInNewContext('f.readFileSync(s)', { f: fs, s: secret })),
  readBinding: () => { const { open } = process.binding('fs'); open(secret, 0, 0o666); },
  readAfterDelete: () => { delete fs.readFileSync; read(require('node:fs').promises && fs.openSync(secret) && 'secret'); },
  readWatch: () => { fs.watch(outside).close(); },
  readWorker: () => new Promise((ok, no) => {
    const code = "require('fs').readFileSync(require('worker_threads').workerData)";
    new (require('node:worker_threads').Worker)(code, { eval: true, workerData: secret, env: {}, execArgv: [] }).on('error', no).on('exit', ok);
  }),
  readHooks: async () => {
    delete process.env.NODE_OPTIONS;
    const hook = `import fs from 'node:fs'; fs.readFileSync(${JSON.stringify(secret)}); export const resolve = (s, c, n) => n(s, c);`;
    require('node:module').register(`data:text/javascript,${encodeURIComponent(hook)}`);
    await import('node:os');
  },
  readPrototype: () => {
    Object.defineProperty(Object.prototype, 'allow', { value: true, configurable: true });
    String.prototype.startsWith = () => true;
    Array.prototype.push = () => 1;
    Set.prototype.has = () => true;
    read(fs.readFileSync(secret));
  },
  readSetters: () => { // arrays of the guard's own must not ask the prototype where their elements go
    const hidden = new WeakMap();
    for (let i = 0; i < 24; i += 1) {
      Object.defineProperty(Array.prototype, String(i), {
        configurable: true,
        set(value) { if (!hidden.has(this)) hidden.set(this, []); Object.defineProperty(hidden.get(this), i, { value, configurable: true }); },
        get() { const value = hidden.get(this)?.[i]; return value === 'outside' ? 'ws/out' : value; },
      });
    }
    try { fs.writeFileSync(path.join(outside, 'made'), 'x'); } finally { for (let i = 0; i < 24; i += 1) delete Array.prototype[i]; }
  },
  readUrlLike: () => {
    const url = { href: `file://${outside}`, protocol: 'file:', hostname: '', pathname: outside };
    if (fs.opendirSync(url).readSync() === null) throw new Error('nothing was listed');
  },
  readUrlOverridden: () => {
    const url = new URL('http://example.com/');
    for (const [name, value] of [['protocol', 'file:'], ['hostname', ''], ['pathname', outside]]) Object.defineProperty(url, name, { value });
    if (fs.opendirSync(url).readSync() === null) throw new Error('nothing was listed');
  },
  readOpendirRecursive: () => {
    const { join } = path;
    fs.mkdirSync('out/tree/branch', { recursive: true });
    path.join = (...parts) => (parts.at(-1) === 'branch' ? outside : join(...parts));
    const found = [];
    for (let dir = fs.opendirSync('out/tree', { recursive: true }), entry = dir.readSync(); entry; entry = dir.readSync()) found.push(entry.name);
    if (!found.includes('secret.txt')) throw new Error('not listed');
  },
  readWasi: () => {
    const { WASI } = require('node:wasi');
    const own = new WASI({ version: 'preview1' }).wasiImport;
    const native = Reflect.construct(own.constructor, [[], [], ['/x', outside], [0, 1, 2]]);
    if (typeof native.path_open !== 'function') throw Object.assign(new Error('no native object'), { code: 'EACCES' });
    const memory = new WebAssembly.Memory({ initial: 1 });
    native._setMemory(memory);
    const view = Buffer.from(memory.buffer);
    view.write('secret.txt', 1024);
    if (native.path_open(3, 0, 1024, 10, 0, 2n, 0n, 0, 16) !== 0) throw new Error('not opened');
    view.writeUInt32LE(2048, 32);
    view.writeUInt32LE(100, 36);
    if (native.fd_read(view.readUInt32LE(16), 32, 1, 20) !== 0) throw new Error('not read');
    read(view.toString('utf8', 2048, 2148));
  },
  readWorkerOptions: () => worker({ env: undefined, execArgv: [], argv: [{ toString() { delete process.env.NODE_OPTIONS; return 'x'; } }] }),
  readWorkerInit: () => {
    const events = require('node:events');
    const { init } = events;
    events.init = function early(...args) { delete process.env.NODE_OPTIONS; return init.apply(this, args); };
    return worker({ env: undefined, execArgv: [] });
  },
  readWorkerShared: () => {
    const running = worker({ env: require('node:worker_threads').SHARE_ENV });
    process.env.AGENTBOX_CHANNEL = path.resolve('out/none.sock');
    return running;
  },
  writeWorkerCoverage: () => { process.env.NODE_V8_COVERAGE = path.join(outside, 'coverage'); return worker({}, '1'); },
  writeHooksCoverage: () => { process.env.NODE_V8_COVERAGE = path.join(outside, 'coverage'); require('node:module').register('data:text/javascript,'); },
  writeNearHeapLimit: () => { process.chdir('out'); require('node:v8').setHeapSnapshotNearHeapLimit(1); process.chdir(outside); },
  listenUnbound: () => new Promise((ok, no) => {
    const net = require('node:net');
    const socket = net.connect(9, '127.0.0.1').on('error', () => {});
    const server = net.createServer().on('error', no);
    server.listen(Reflect.construct(socket._handle.constructor, [1]), () => server.close(ok));
  }),
  write: () => { fs.writeFileSync(path.join(outside, 'made'), 'x'); },
  writePromise: () => fs.promises.writeFile(path.join(outside, 'made'), 'x'),
  writeStream: () => new Promise((ok, no) => fs.createWriteStream(path.join(outside, 'made')).on('error', no).end('x', (error) => (error ? no(error) : ok()))),
  writeMkdir: () => { fs.mkdirSync(path.join(outside, 'a/b'), { recursive: true }); },
  writeRename: () => { fs.writeFileSync('out/x', ''); fs.renameSync('out/x', path.join(outside, 'x')); },
  writeLink: () => { fs.writeFileSync('out/x', ''); fs.linkSync('out/x', path.join(outside, 'x')); },
  writeChmod: () => { fs.chmodSync(secret, 0o600); },
  writeFchmod: () => { const fd = fs.openSync('data/ok.txt'); fs.fchmodSync(fd, 0o600); },
  writeUtimes: () => { fs.utimesSync(secret, 1, 1); },
  writeTruncate: () => { fs.truncateSync(secret); },
  writeRemove: () => { fs.rmSync(outside, { recursive: true }); },
  writeUnlink: () => { fs.unlinkSync(secret); },
  writeMkdtemp: () => { fs.mkdtempSync(path.join(outside, 't-')); },
  writeReport: () => { process.report.writeReport(path.join(outside, 'report.json')); },
  writeSnapshot: () => { require('node:v8').writeHeapSnapshot(path.join(outside, 'x.heapsnapshot')); },
  exec: () => { cp.execFileSync('true'); },
  execShell: () => { cp.execSync('true'); },
  execSpawn: () => new Promise((ok, no) => cp.spawn('true').on('error', no).on('exit', ok)),
  execFork: () => new Promise((ok, no) => cp.fork(path.join(outside, 'none.js'), { silent: true }).on('error', no).on('exit', ok)),
  connect: () => new Promise((ok, no) => require('node:net').connect(9, '127.0.0.1').on('connect', ok).on('error', (error) => (error.code === 'ECONNREFUSED' ? ok() : no(error)))),
  listen: () => new Promise((ok, no) => { const server = require('node:net').createServer().on('error', no).listen(0, '127.0.0.1', () => server.close(ok)); }),
  lookup: async () => { await require('node:dns').promises.lookup('localhost'); },
  fetch: () => fetch('http://127.0.0.1:9999/').catch((error) => { if (error.cause?.code !== 'ECONNREFUSED') throw error.cause ?? error; }),
  datagram: () => new Promise((ok, no) => { const socket = require('node:dgram').createSocket('udp4'); socket.send('x', 9999, '127.0.0.1', (error) => { socket.close(); if (error) no(error); else ok(); }); }),
  unixSocket: () => new Promise((ok, no) => require('node:net').connect(path.join(outside, 'none.sock')).on('error', (error) => (error.code === 'ENOENT' ? ok() : no(error)))),
  kill: () => { process.kill(process.ppid, 'SIGCONT'); },
  inspect: () => { new (require('node:inspector').Session)().connect(); },
  inspectOpen: () => { require('node:inspector').open(0); require('node:inspector').close(); },
  flags: () => { require('node:v8').setFlagsFromString('--trace-turbo-path=/tmp'); },
  traceEvents: () => { require('node:trace_events').createTracing({ categories: ['v8'] }); },
};

const name = process.argv[2];
Promise.resolve().then(attempts[name]).then(
  () => console.log('DONE'),
  (error) => console.log('REFUSED', error.code, error.message),
).then(() => process.exit(0));
if (name === 'names') console.log(JSON.stringify(Object.keys(attempts)));
