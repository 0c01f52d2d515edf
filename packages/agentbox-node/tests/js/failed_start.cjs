// Starts a program that cannot be started in every way that child_process has, and tells what came of it, one JSON line a way.
const cp = require('child_process');
const { promisify } = require('util');
const program = process.argv[2];

function plain(error) {
  if (error === null || error === undefined) return error;
  const { name, code, errno, syscall, path, spawnargs, cmd, killed, signal, status, cause } = error;
  return { name, message: error.message, code, errno, syscall, path, spawnargs, cmd, killed, signal, status, cause: typeof cause };
}

function streamsOf(child) {
  return (child.stdio ?? []).map((stream) => (stream === null || stream === undefined ? null : {
    readable: stream.readable, writable: stream.writable, destroyed: stream.destroyed,
  }));
}

/** All events of a child and its streams, in their order, until nothing is left to come; never ends if a stream does not. */
function watch(make) {
  return new Promise((done) => {
    const events = [];
    let child;
    try {
      child = make((...args) => events.push(['callback', plain(args[0]), args[1], args[2]]));
    } catch (error) {
      done({ thrown: plain(error) });
      return;
    }
    const told = { pid: child.pid, connected: child.connected, streams: streamsOf(child) };
    let open = 1;
    const closed = () => {
      open -= 1;
      if (open === 0) setImmediate(() => done({ ...told, events, exitCode: child.exitCode, signalCode: child.signalCode, after: streamsOf(child), pidAfter: child.pid }));
    };
    for (const name of ['spawn', 'error', 'exit', 'close', 'disconnect']) {
      child.on(name, (...args) => events.push([name, ...args.map((one) => (one instanceof Error ? plain(one) : one))]));
    }
    child.on('error', () => { if (!child.stdout && !child.stderr) setImmediate(closed); });
    for (const [name, stream] of [['stdout', child.stdout], ['stderr', child.stderr]]) {
      if (!stream) continue;
      open += 1;
      for (const event of ['data', 'end', 'close', 'error']) stream.on(event, (one) => events.push([`${name}.${event}`, event === 'error' ? plain(one) : undefined]));
      stream.on('close', closed);
    }
    if (child.stdin) {
      child.stdin.on('error', (error) => events.push(['stdin.error', error.code]));
      open += 1;
      child.stdin.on('close', () => { events.push(['stdin.close']); closed(); });
    }
    if (child.stdout || child.stderr) child.on('error', closed);
  });
}

function attempt(make) {
  try {
    const { error, status, signal, pid, output, stdout, stderr } = make();
    return { error: plain(error), status, signal, pid, output, stdout, stderr };
  } catch (error) {
    return { thrown: plain(error) };
  }
}

const aborted = () => { const one = new AbortController(); one.abort(); return one.signal; };
const WAYS = {
  spawn: () => watch(() => cp.spawn(program, ['a', 'b'])),
  ignore: () => watch(() => cp.spawn(program, [], { stdio: 'ignore' })),
  inherit: () => watch(() => cp.spawn(program, [], { stdio: 'inherit' })),
  mixed: () => watch(() => cp.spawn(program, [], { stdio: ['ignore', 'pipe', 'inherit', 'pipe'] })),
  overlapped: () => watch(() => cp.spawn(program, [], { stdio: ['pipe', 'overlapped', 2] })),
  shell: () => watch(() => cp.spawn('echo x', { shell: program })),
  detached: () => watch(() => cp.spawn(program, [], { detached: true, argv0: 'other' })),
  timeout: () => watch(() => cp.spawn(program, [], { timeout: 60000 })),
  noFolder: () => watch(() => cp.spawn(process.execPath, ['-v'], { cwd: '/nowhere/at/all' })),
  aborted: () => watch(() => cp.spawn(program, [], { signal: aborted() })),
  execFile: () => watch((tell) => cp.execFile(program, ['a'], tell)),
  exec: () => watch((tell) => cp.exec('echo x', { shell: program }, tell)),
  fork: () => watch(() => cp.fork('x.js', [], { execPath: program })),
  forkSilent: () => watch(() => cp.fork('x.js', [], { execPath: program, silent: true, execArgv: [] })),
  promised: () => promisify(cp.execFile)(program, ['a']).catch((error) => ({ ...plain(error), stdout: error.stdout, stderr: error.stderr })),
  spawnSync: () => attempt(() => cp.spawnSync(program, ['a'], { encoding: 'utf8' })),
  spawnSyncInherit: () => attempt(() => cp.spawnSync(program, { stdio: 'inherit', input: 'x' })),
  execFileSync: () => attempt(() => cp.execFileSync(program, ['a'])),
  execSync: () => attempt(() => cp.execSync('echo x', { shell: program })),
};

(async () => {
  for (const [name, way] of Object.entries(WAYS)) {
    const told = await way();
    console.log(JSON.stringify({ name, told: told ?? null }));
  }
  process.exit(); // the channel of a fork that failed stays open
})();
