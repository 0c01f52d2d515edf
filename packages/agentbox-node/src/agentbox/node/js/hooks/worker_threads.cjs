'use strict';
// Threads: every worker starts with the guard's variables, whatever its own env and execArgv say, or does not start.
// The class that Node has cannot be reached unchecked: a thread that was not made by the wrapper is not started.

const SHARED = 'with SHARE_ENV the variables that it is started with could be changed while it starts';

module.exports = function install(kit, exported) {
  const { p, report, starter } = kit;
  const { put } = kit.base;
  const { Worker, SHARE_ENV } = exported;
  const FIELDS = ['argv', 'eval', 'name', 'resourceLimits', 'stderr', 'stdin', 'stdout', 'trackUnmanagedFds', 'transferList', 'workerData'];

  /**
   * The variables of a thread, of which Node takes its options where it is `parsing`: then those that are checked here must be those
   * that it gets, since code of the agent may run in between.
   */
  function variables(given, parsing) {
    if (given === SHARE_ENV && !kit.contained) starter.refuseThread(SHARED);
    if (given === SHARE_ENV || ((given === undefined || given === null) && !parsing)) {
      starter.restore();
      return given === SHARE_ENV ? SHARE_ENV : undefined;
    }
    let pairs = [];
    if (given === undefined || given === null) {
      pairs = starter.own();
    } else {
      const names = p.keys(given);
      for (let i = 0; i < names.length; i += 1) p.push(pairs, `${names[i]}=${p.String(given[names[i]])}`);
    }
    const found = starter.environment(pairs);
    const made = { __proto__: null };
    for (let i = 0; i < found.pairs.length; i += 1) {
      const at = p.indexOf(found.pairs[i], '=', 1);
      made[p.slice(found.pairs[i], 0, at)] = p.slice(found.pairs[i], at + 1);
    }
    const problem = starter.writing(made);
    if (problem !== '') starter.refuseThread(problem);
    return made;
  }

  function options(given) {
    const made = { __proto__: null };
    const source = given !== null && typeof given === 'object' ? given : { __proto__: null };
    for (let i = 0; i < FIELDS.length; i += 1) {
      const value = source[FIELDS[i]];
      if (value !== undefined) made[FIELDS[i]] = value;
    }
    if (p.isArray(made.argv)) made.argv = starter.words(made.argv);
    const flags = source.execArgv;
    const env = variables(source.env, p.isArray(flags));
    if (env !== undefined) made.env = env;
    if (p.isArray(flags)) {
      made.execArgv = [];
      for (let i = 0; i < flags.length; i += 1) {
        const word = p.String(flags[i]);
        if (word[0] === '-' && !kit.isHarmlessOption(word)) {
          const error = report.forbid(`new Worker with ${word}`, 'this option is not one that agentbox knows to leave the guard in place');
          if (error !== undefined) throw error;
        }
        p.push(made.execArgv, word);
      }
    }
    return made;
  }

  let approved = 0;
  const handler = {
    __proto__: null,
    construct(target, args, newTarget) {
      const filename = args[0] !== null && typeof args[0] === 'object' && kit.isURL(args[0]) ? new kit.URL(kit.hrefOf(args[0])) : args[0];
      const given = options(args[1]);
      approved += 1;
      try {
        return kit.threads.make(() => p.construct(target, [filename, given], newTarget === guarded ? target : newTarget));
      } finally {
        approved -= 1;
      }
    },
  };
  const guarded = new p.Proxy(Worker, handler);
  lockHandles();
  put(Worker.prototype, 'constructor', guarded, true);
  put(exported, 'Worker', guarded);

  /** Reach the native class through a worker that fails before it starts, and have it start approved threads only. */
  function lockHandles() {
    let native;
    function Never() {}
    Never.prototype = new p.Proxy(Worker.prototype, {
      __proto__: null,
      set(target, key, value, receiver) {
        if (value !== null && typeof value === 'object' && typeof value.startThread === 'function') native = p.prototypeOf(value);
        return p.reflectDefine(receiver, key, { __proto__: null, value, writable: true, enumerable: true, configurable: true });
      },
    });
    try {
      p.construct(Worker, ['', { __proto__: null, eval: true, execArgv: ['--agentbox-makes-this-fail'] }], Never);
    } catch {
      // as it should
    }
    if (native === undefined) kit.channel.gone('this version of Node starts threads in a way that the guard does not know');
    const { startThread } = native;
    put(native, 'startThread', function startThread_(...args) {
      if (approved === 0 && !kit.threads.isOpen()) {
        const error = report.forbid('a worker thread made around the guard', 'it would run without the guard');
        if (error !== undefined) throw error;
      }
      return p.apply(startThread, this, args);
    }, true);
    put(native, 'constructor', p.Error, true);
  }
};
