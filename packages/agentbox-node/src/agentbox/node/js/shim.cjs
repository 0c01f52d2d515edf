'use strict';
// Arms the guard of this Node process or thread: the first code that runs in it (NODE_OPTIONS --require), before any of the agent's.
// Never returns with a guard that is not known to work: what goes wrong ends the process with status 70 and says why.

const OLDEST = 20;

/** End the process (a worker thread cannot choose the status of its process, so it kills it). */
function makeEnd(process, isMain) {
  const { reallyExit, pid } = process;
  const kill = process._kill;
  return function end() {
    if (isMain) reallyExit.call(process, 70);
    else kill.call(process, pid, 9);
    for (;;); // not reached
  };
}

function fail(why) {
  try {
    require('fs').writeSync(2, `agentbox: the guard could not be armed, so nothing was run: ${why}\n`);
  } finally { // also where nothing can be said: standard error may be a full pipe
    makeEnd(process, threadFacts().isMainThread)();
  }
}

const { compileFunction } = require('vm');
const { readFileSync } = require('fs');

/** Run one of our own files without leaving it in the module cache, where the agent could pick up what it holds.
 *  Most are read only when they are needed, with functions that were taken before the agent's code. */
function part(name) {
  const path = `${__dirname}/${name}.cjs`;
  const made = { exports: {} };
  compileFunction(readFileSync(path, 'utf8'), ['module', 'exports'], { filename: path })(made, made.exports);
  return made.exports;
}

/** A synchronous stat that answers a copy and leaves `statValues`, the one array that Node answers in, as it was:
 *  fs.realpathSync, which finds the file behind a script's link, still reads there what the program's own last stat found,
 *  and stops at a socket (lib/fs.js, Node 20 to 24), such as the guard's channel. */
function rawStat(p, binding, name) {
  const original = binding[name];
  const { statValues } = binding;
  const kept = new p.Float64Array(statValues.length);
  return (...args) => {
    p.viewSet(kept, statValues);
    try {
      return p.apply(original, binding, args) && new p.Float64Array(statValues);
    } finally {
      p.viewSet(statValues, kept);
    }
  };
}

/** The raw functions that the guard itself works with, taken before they are replaced. */
function rawFiles(p, binding) {
  const raw = { __proto__: null, kUsePromises: binding.kUsePromises, FSReqCallback: binding.FSReqCallback };
  for (const name of ['access', 'close', 'open', 'read', 'readdir', 'readlink', 'realpath', 'writeBuffer', 'writeString']) {
    const original = binding[name];
    raw[name] = (...args) => p.apply(original, binding, args);
  }
  for (const name of ['fstat', 'lstat', 'stat']) raw[name] = rawStat(p, binding, name);
  return p.freeze(raw);
}

function rawPipes(p, binding) {
  const { Pipe, PipeConnectWrap, constants } = binding;
  let stream = Pipe.prototype;
  while (!Object.hasOwn(stream, 'setBlocking')) stream = Object.getPrototypeOf(stream);
  const handle = Object.getPrototypeOf(stream);
  return p.freeze({
    __proto__: null,
    Pipe,
    PipeConnectWrap,
    constants,
    connect: p.uncurry(Pipe.prototype.connect),
    setBlocking: p.uncurry(stream.setBlocking),
    readStart: p.uncurry(stream.readStart),
    fd: p.uncurry(Object.getOwnPropertyDescriptor(stream, 'fd').get),
    ref: p.uncurry(handle.ref),
    unref: p.uncurry(handle.unref),
    close: p.uncurry(handle.close),
  });
}

/** Have `onLoad(name, hook)` run code right after a built-in module or binding is loaded, before anyone else gets it.
 *  Node notes each in an array; that array inherits from a proxy, so that the note is seen, and only a copy is shown. */
function watchLoads(kit) {
  const { p } = kit;
  const list = process.moduleLoadList;
  const waiting = new p.Map();
  const loaded = new p.Set([...list, 'process', 'Module']);
  p.setPrototypeOf(list, new p.Proxy(Array.prototype, {
    __proto__: null,
    set(target, key, value, receiver) {
      p.reflectDefine(receiver, key, { __proto__: null, value, writable: true, enumerable: true, configurable: true });
      p.setAdd(loaded, value);
      const runs = p.mapGet(waiting, value);
      if (runs !== undefined) {
        p.mapDelete(waiting, value);
        for (let i = 0; i < runs.length; i += 1) run(value, runs[i]);
      }
      return true;
    },
  }));
  p.defineProperty(process, 'moduleLoadList', {
    __proto__: null,
    enumerable: true,
    configurable: false,
    get() {
      const shown = [];
      for (let i = 0; i < list.length; i += 1) p.push(shown, list[i]);
      return shown;
    },
  });
  /** What cannot be guarded must not be used: a hook that fails ends the process. */
  function run(name, hook) {
    try {
      hook();
    } catch (error) {
      kit.channel.gone(`${name} cannot be guarded in Node ${process.versions.node}: ${error?.message}`);
    }
  }

  return function onLoad(name, hook) {
    if (p.setHas(loaded, name)) {
      run(name, hook);
      return;
    }
    const hooks = p.mapGet(waiting, name);
    if (hooks === undefined) p.mapSet(waiting, name, [hook]);
    else p.push(hooks, hook);
  };
}

/** Everything that the parts share. */
function makeKit(p) {
  const fs = require('fs');
  const url = require('url');
  const { Buffer } = require('buffer');
  const { binding, getBuiltinModule, cwd, nextTick } = process;
  const { errno, signals } = binding.call(process, 'constants').os;
  const byNumber = [];
  for (const name of Object.keys(errno)) if (!['EWOULDBLOCK', 'EOPNOTSUPP'].includes(name)) byNumber.push([errno[name], name]);
  const hrefOf = p.uncurry(Object.getOwnPropertyDescriptor(URL.prototype, 'href').get);
  const encodings = { base64: p.uncurry(Buffer.prototype.base64Slice), utf8: p.uncurry(Buffer.prototype.utf8Slice) };
  const bufferFrom = Buffer.from.bind(Buffer);
  return {
    __proto__: null,
    p,
    process,
    folder: `${__dirname}/`,
    form: part('forms/path')(p),
    makeProtection: (...args) => part('forms/protected')(...args),
    raw: rawFiles(p, binding.call(process, 'fs')),
    pipes: rawPipes(p, binding.call(process, 'pipe_wrap')),
    binding: (name) => p.apply(binding, process, [name]),
    builtin: (name) => p.apply(getBuiltinModule, process, [name]),
    cwd: () => p.apply(cwd, process, []),
    nextTick: (...args) => p.apply(nextTick, process, args),
    env: process.env,
    constants: p.freeze({ __proto__: null, ...fs.constants }),
    errnoNames: byNumber,
    SIGUSR1: signals.SIGUSR1,
    URL,
    hrefOf,
    isURL(value) {
      try {
        hrefOf(value);
        return true;
      } catch {
        return false;
      }
    },
    decodeURI: (text) => { try { return decodeURIComponent_(text); } catch { return text; } },
    fileURLToPath: url.fileURLToPath,
    writeFileSync: fs.writeFileSync,
    buffers: p.freeze({
      __proto__: null,
      bufferFrom: (text) => bufferFrom(text, 'utf8'),
      bytesFromBase64: (text) => bufferFrom(text, 'base64'),
      base64Of: (bytes) => encodings.base64(bufferFrom(bytes), 0, bytes.length),
      utf8Of: (buffer) => encodings.utf8(buffer, 0, buffer.length),
    }),
    makeChannel: part('channel'),
    makeSha256: (primordials) => part('sha256')(primordials),
    isHarmlessOption: part('options')(p),
    lastRefusal: undefined,
  };
}

const decodeURIComponent_ = decodeURIComponent;

/** node:crypto for files that are too large to be hashed in JavaScript, as it was right after it was loaded. */
function makeHasher(kit) {
  const { p } = kit;
  let taken = null;
  kit.takeHasher = (crypto) => {
    const { createHash } = crypto;
    const { update, digest } = createHash('sha256').constructor.prototype;
    const end = p.uncurry(digest);
    taken = { __proto__: null, start: () => createHash('sha256'), add: p.uncurry(update), end: (state) => end(state, 'hex') };
  };
  kit.hasher = () => {
    if (taken === null) kit.builtin('crypto');
    return taken;
  };
}

/** The interpreter's own files: readable without a rule, never writable. */
function ownFiles() {
  const fs = require('fs');
  const found = [__dirname];
  try {
    found.push(fs.realpathSync(process.execPath));
  } catch {
    found.push(process.execPath);
  }
  return found;
}

/** Install the hooks of the table: those of what is loaded now at once, the others when Node loads what they are for. */
function install(kit, onLoad) {
  for (const [file, ...names] of part('hooks/index')) {
    let hook;
    for (const name of names) {
      onLoad(name, () => {
        hook ??= part(`hooks/${file}`);
        hook(kit, subject(kit, name), name);
      });
    }
  }
}

/** What a hook is installed in: the exports of a module, a binding, or one of two objects that are always there. */
function subject(kit, name) {
  const { p } = kit;
  if (name === 'process') return process;
  if (name === 'Module') return module.constructor;
  if (p.startsWith(name, 'Internal Binding ')) return kit.binding(p.slice(name, 17));
  return kit.builtin(builtinName(p.slice(name, 13)));
}

/** Modules that have no name without `node:` (doc/api/modules.md). */
function builtinName(name) {
  return name === 'sqlite' || name === 'ffi' || name === 'vfs' ? `node:${name}` : name;
}

/** Threads that Node starts for itself (module.register): let through once, and only while that call runs. */
function makeThreads(p) {
  const EventEmitter = require('events');
  const { init } = EventEmitter;
  let open = 0;
  let used = false;

  /** Make a thread with EventEmitter.init as Node has it: the agent's would be called before the thread copies its variables. */
  function make(run) {
    const theirs = p.descriptor(EventEmitter, 'init');
    p.defineProperty(EventEmitter, 'init', { __proto__: null, value: init, writable: true, enumerable: true, configurable: true });
    try {
      return run();
    } finally {
      p.defineProperty(EventEmitter, 'init', theirs);
    }
  }

  return Object.freeze({
    __proto__: null,
    isOpen: () => open > 0,
    make,
    open(run) {
      if (used) return run();
      used = true;
      open += 1;
      try {
        return make(run);
      } finally {
        open -= 1;
      }
    },
  });
}

/** Whether the public functions really end in the guarded ones in this version of Node. */
function probe(kit) {
  const fs = require('fs');
  const path = `/agentbox.probe.${process.pid}.${process.hrtime.bigint()}`;
  kit.probe = path;
  kit.probed = 0;
  const attempts = [
    () => fs.existsSync(path), () => fs.openSync(path), () => fs.readFileSync(path), () => fs.readFileSync(path, 'utf8'), () => fs.statSync(path),
    () => fs.readdirSync(path), () => fs.accessSync(path),
  ];
  for (const attempt of attempts) {
    try {
      attempt();
    } catch {
      // nothing is there
    }
  }
  kit.probe = undefined;
  return kit.probed >= attempts.length;
}

function arm() {
  const [major] = process.versions.node.split('.');
  if (Number(major) < OLDEST) return `this is Node ${process.versions.node}, and the guard needs ${OLDEST} or newer`;
  const { isMainThread, threadId } = threadFacts();
  const initial = isMainThread ? { ...process.env } : initialEnvironment();
  const address = initial.AGENTBOX_CHANNEL;
  if (!address) return 'AGENTBOX_CHANNEL is not set: it was started around its supervisor';
  const p = part('primordials');
  const kit = makeKit(p);
  kit.end = makeEnd(process, isMainThread);
  kit.thread = threadId;
  const facts = `"role":"guard","runtime":"node","version":${JSON.stringify(process.versions.node)},"ppid":${process.ppid},"executable":${JSON.stringify(process.execPath)}`;
  kit.channel = kit.makeChannel(kit, address, facts, threadId);
  const welcome = kit.channel.greet(isMainThread ? '' : ',"resume":true,"full":true');
  kit.contained = welcome.contained === true;
  kit.paths = part('resolve')(kit);
  kit.decide = part('decide')(kit, welcome, ownFiles(), process.pid);
  kit.report = part('report')(kit, welcome);
  kit.digest = part('digest')(kit);
  kit.base = part('hooks/_base')(kit);
  kit.threads = makeThreads(p);
  makeHasher(kit);
  lazily(kit, 'calls', () => part('calls')(kit));
  lazily(kit, 'starter', () => part('starter')(kit, welcome, initial));
  install(kit, kit.onLoad = watchLoads(kit));
  if (!probe(kit)) return `node:fs of Node ${process.versions.node} does not use the bindings that the guard stands in`;
  let sdk;
  Object.defineProperty(globalThis, 'agentbox', { get: () => sdk ??= part('sdk')(kit), enumerable: false, configurable: false });
  if (!isMainThread && welcome.mode !== 'observe' && kit.starter.writing() !== '') return `of a thread, ${kit.starter.writing()}`;
  if (isMainThread) kit.channel.send(`{"t":"armed","thread":${threadId}}\n`);
  return '';
}

/** The variables that this process was started with, from the kernel (proc_pid_environ(5)). Those of a worker thread are what
 *  the agent had made of them while the thread was started: with an address of its own it would be its own supervisor. */
function initialEnvironment() {
  const made = { __proto__: null };
  for (const pair of readFileSync('/proc/self/environ', 'utf8').split('\0')) {
    const at = pair.indexOf('=', 1);
    if (at > 0) made[pair.slice(0, at)] = pair.slice(at + 1);
  }
  return made;
}

/** A part that is read when it is first used. */
function lazily(kit, name, make) {
  let made;
  kit.p.defineProperty(kit, name, { __proto__: null, get: () => made ??= make() });
}

/** Which thread this is. Loading node:worker_threads takes a millisecond, which the main thread need not pay. */
function threadFacts() {
  const isWorker = process.chdir.disabled === true; // doc/api/worker_threads.md: what a worker cannot do is marked so
  return isWorker ? require('worker_threads') : { isMainThread: true, threadId: 0 };
}

function start() {
  const quiet = process.noDeprecation;
  process.noDeprecation = true;
  try {
    const problem = arm();
    if (problem !== '') fail(problem);
  } catch (error) {
    fail(error?.stack ? String(error.stack).split('\n').slice(0, 3).join(' ') : String(error));
  }
  process.noDeprecation = quiet;
  delete require.cache[__filename];
  if (quiet === undefined) delete process.noDeprecation;
}

if (!Object.getOwnPropertyDescriptor(globalThis, 'agentbox')) start();
