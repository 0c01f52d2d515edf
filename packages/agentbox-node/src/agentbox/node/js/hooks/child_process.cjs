'use strict';
// Programs: every form of child_process, fork and cluster, in the two bindings that they end in. The supervisor decides.
// Finds the one file that would run and passes on exactly that; every child gets the variables that bring the guards in.

// What execve(2) fails for with ENOENT and EACCES whoever asks: nobody makes a name in /proc, and a device is no program for root either.
const MISSING = '/proc/agentbox-no-such-program';
const REFUSED = '/dev/null';
const ENOENT = -2;
const ESRCH = -3;

module.exports = function install(kit, binding, name) {
  const { p, report, starter } = kit;
  const { wrap, ownerOf, explainNext, put } = kit.base;
  const FIELDS = [
    'detached', 'windowsHide', 'windowsVerbatimArguments', 'uid', 'gid', 'timeout', 'maxBuffer', 'killSignal',
  ];

  /** Options as Node hands them to the binding, each read once: what is judged is what runs. */
  function copied(options) {
    const made = { __proto__: null, file: options.file, args: options.args, cwd: options.cwd, envPairs: options.envPairs };
    for (let i = 0; i < FIELDS.length; i += 1) {
      const value = options[FIELDS[i]];
      if (value !== undefined) made[FIELDS[i]] = value;
    }
    const { stdio } = options;
    made.stdio = [];
    for (let i = 0; p.isArray(stdio) && i < stdio.length; i += 1) {
      const { type, fd, handle, readable, writable, input, ipc, wrapType, _stdio } = stdio[i];
      const one = { __proto__: null, type, fd, handle, readable, writable, input, ipc, wrapType, _stdio };
      const fields = p.keys(one);
      for (let k = 0; k < fields.length; k += 1) if (one[fields[k]] === undefined) delete one[fields[k]];
      p.push(made.stdio, one);
    }
    return made;
  }

  function apply(options, verdict) {
    options.file = verdict.file;
    options.args = verdict.args;
    options.envPairs = verdict.pairs;
    if (verdict.cwd === undefined) delete options.cwd;
    else options.cwd = verdict.cwd;
  }

  /**
   * Have the system refuse a start that must not be: what a failed start leaves (pid, pipes that end, events, in Node's own order)
   * is then as it is without a guard. Returns what explains the failure; undefined when there is nothing to explain.
   */
  function fail(options, { missing, error }) {
    const isMissing = missing || error.errno === ENOENT;
    options.file = isMissing ? MISSING : REFUSED;
    options.args = [options.file];
    options.envPairs = [];
    delete options.cwd;
    if (isMissing) return undefined;
    delete options.uid;
    delete options.gid;
    return p.startsWith(error.message, 'agentbox: ') ? error : undefined;
  }

  /** Options made those of the start that was judged, or of one that fails; returns what explains that. */
  function settle(options) {
    const verdict = starter.judge(options.file, options.args, options.cwd, options.envPairs);
    if (verdict.missing || verdict.error !== undefined) return fail(options, verdict);
    apply(options, verdict);
    return undefined;
  }

  function spawnAsync(prototype) {
    wrap(prototype, 'spawn', (original) => function spawn(...args) {
      const isObject = args.length === 1;
      const options = copied(isObject ? args[0] : { __proto__: null, file: args[0], args: args[1], cwd: args[2], envPairs: args[3], stdio: args[4] });
      const refusal = settle(options);
      if (refusal !== undefined) explainNext(ownerOf(this), refusal);
      if (isObject) return p.apply(original, this, [options]);
      args[0] = options.file;
      args[1] = options.args;
      args[2] = options.cwd;
      args[3] = options.envPairs;
      args[4] = options.stdio;
      return p.apply(original, this, args);
    }, true);
    wrap(prototype, 'kill', (original) => function kill(signal) {
      const number = signal | 0;
      const { pid } = this;
      if (typeof pid !== 'number') return ESRCH; // nothing was started, and libuv would signal 0, the whole process group
      const { error } = number === 0 ? { error: undefined }
        : report.inquire('proc.signal', `"target":${pid | 0},"signal":${number}`, { __proto__: null, syscall: 'kill' });
      return error === undefined ? p.apply(original, this, [number]) : -1;
    }, true);
    put(prototype, 'constructor', p.Error, true);
  }

  /** A result of spawn_sync whose `error`, set by Node from a number, becomes the refusal. */
  function explained(result, refusal) {
    if (refusal === undefined || result === null || typeof result !== 'object') return result;
    let shown = result.error;
    p.defineProperty(result, 'error', {
      __proto__: null,
      enumerable: true,
      configurable: true,
      get: () => shown,
      set: (error) => { shown = report.explain(error, refusal); },
    });
    return result;
  }

  if (name === 'Internal Binding process_wrap') {
    spawnAsync(binding.Process.prototype);
    return;
  }
  wrap(binding, 'spawn', (original) => function spawn(given) {
    const options = copied(given);
    const refusal = settle(options);
    return explained(p.apply(original, binding, [options]), refusal);
  });
};
