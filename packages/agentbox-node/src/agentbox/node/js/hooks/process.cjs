'use strict';
// What `process` can do beside the rest: signals, native code, raw bindings, replacing the program, reports, the debugger.
// Signals are the supervisor's to decide; raw bindings and the debugger go around every guard and are refused.

const HARMLESS_BINDINGS = ['constants', 'natives', 'util', 'config', 'buffer', 'uv', 'async_wrap'];
const UNHELD = 'native code is loaded only from where the agent cannot write; '
  + 'with the kernel layers (without --layers guard) also from installed packages, in a node_modules folder';
const SIGUSR1_REASON = 'it starts the debugger, which reaches around the guard';

module.exports = function install(kit, process) {
  const { p, report, channel, decide, paths, files } = kit;
  const { put, refuse, wrap, publicPath } = kit.base;
  const { member } = channel;

  wrap(process, '_kill', (original) => function kill(pid, signal) {
    const target = p.Number(pid) | 0;
    const number = p.Number(signal) | 0;
    let error;
    if (target === process.pid && number === kit.SIGUSR1) error = report.forbid('SIGUSR1', SIGUSR1_REASON);
    else if (target !== process.pid) {
      error = report.inquire('proc.signal', `"target":${target},"signal":${number}`, { __proto__: null, syscall: 'kill' }).error;
    }
    if (error !== undefined) throw error;
    return original(target, number);
  });

  // Another process of the run may send it, and the handler that Node begins with starts the debugger. What Node makes at the first
  // listener takes its place for good: after the last one is gone, the system's own remains (src/unix/signal.c of libuv).
  if (!kit.contained && kit.thread === 0) process.emit('newListener', 'SIGUSR1', () => {});

  const real = kit.binding;
  const harmless = new p.Set(HARMLESS_BINDINGS);
  for (const name of ['binding', '_linkedBinding']) {
    wrap(process, name, () => function binding(module) {
      const title = p.String(module);
      if (name === 'binding' && p.setHas(harmless, title)) return real(title);
      const error = report.forbid(`process.${name}('${title}')`, 'it hands out what is below every guard');
      throw error ?? report.failure(`No such module: ${title}`, 13, { __proto__: null });
    });
  }

  wrap(process, 'dlopen', (original) => function dlopen(...args) {
    const given = publicPath(args[1]) ?? p.String(args[1]); // what is no path is made a text by native code
    args[1] = given;
    const path = paths.resolve(paths.plain(given).text, true);
    const verdict = path === null ? 'its links lead in a circle' : decide.judge('read', path);
    const facts = { __proto__: null, syscall: 'dlopen', path: given };
    let error;
    if (typeof verdict === 'string') {
      const fix = path === null ? '' : decide.fix('read', path, verdict);
      error = report.deny('code.load', member('path', path ?? '?'), 'read', path ?? '?', verdict, fix, facts);
    } else if (!(kit.contained && p.indexOf(path, '/node_modules/', 0) >= 0) && typeof decide.judge('write', path) === 'number') {
      error = report.deny('code.load', member('path', path), 'code', path, UNHELD, '', facts);
    } else if (verdict === decide.RECORDED) {
      error = report.witness('code.load', member('path', path), facts);
    }
    if (error !== undefined) throw error;
    return p.apply(original, process, args);
  });

  wrap(process, 'loadEnvFile', (original) => function loadEnvFile(...args) {
    const given = args.length === 0 || args[0] === undefined ? '.env' : publicPath(args[0]);
    if (given === null) return p.apply(original, process, args);
    const error = files.checkRead(paths.plain(given).text, 'open');
    if (error !== undefined) throw error;
    return p.apply(original, process, [given]);
  });

  wrap(process, 'execve', (original) => function execve(file, args, env) {
    const pairs = [];
    const source = env ?? kit.env;
    const names = p.keys(source);
    for (let i = 0; i < names.length; i += 1) p.push(pairs, `${names[i]}=${source[names[i]]}`);
    const verdict = kit.starter.judge(file, args, undefined, pairs);
    if (verdict.missing) throw report.failure(`ENOENT: no such file or directory, execve '${file}'`, 2, { __proto__: null, syscall: 'execve' });
    if (verdict.error !== undefined) throw verdict.error;
    const complete = {};
    for (let i = 0; i < verdict.pairs.length; i += 1) {
      const at = p.indexOf(verdict.pairs[i], '=', 1);
      p.defineProperty(complete, p.slice(verdict.pairs[i], 0, at), {
        __proto__: null, value: p.slice(verdict.pairs[i], at + 1), enumerable: true, writable: true, configurable: true,
      });
    }
    return original(verdict.file, verdict.args, complete);
  });

  refuse(process, '_debugProcess', 'process._debugProcess', SIGUSR1_REASON);
  refuse(process, '_debugEnd', 'process._debugEnd', SIGUSR1_REASON);

  // Reports are written by native code: they are made as a text here and go out through the guarded node:fs.
  const native = process.report;
  if (native !== undefined && native !== null) {
    const { getReport } = native;
    const place = { __proto__: null, directory: '', filename: '', compact: false };
    const shown = {
      getReport(error) { return p.apply(getReport, native, [error]); },
      writeReport(file, error) {
        const isName = typeof file === 'string';
        const name = (isName ? file : '') || place.filename || `report.${process.pid}.json`;
        const path = name[0] === '/' || place.directory === '' ? name : `${place.directory}/${name}`;
        kit.writeFileSync(path, p.quote(p.apply(getReport, native, [isName ? error : file]), null, place.compact ? 0 : 2));
        return name;
      },
      get directory() { return place.directory; },
      set directory(value) { place.directory = p.String(value); },
      get filename() { return place.filename; },
      set filename(value) { place.filename = p.String(value); },
      get compact() { return place.compact; },
      set compact(value) { place.compact = value === true; },
      get signal() { return 'SIGUSR2'; },
    };
    for (const name of ['reportOnFatalError', 'reportOnSignal', 'reportOnUncaughtException', 'excludeNetwork', 'excludeEnv', 'signal']) {
      p.defineProperty(shown, name, {
        __proto__: null,
        enumerable: true,
        get: () => (name === 'signal' ? 'SIGUSR2' : false),
        set: (value) => {
          const error = value && name !== 'excludeNetwork' && name !== 'excludeEnv'
            ? report.forbid(`process.report.${name}`, 'such reports are written where no guard sees it') : undefined;
          if (error !== undefined) throw error;
        },
      });
    }
    put(process, 'report', shown, true);
  }
};
