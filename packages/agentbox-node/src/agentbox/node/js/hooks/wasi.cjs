'use strict';
// node:wasi: a folder that is opened for WebAssembly is read and written by native code from then on.
// So it must lie in a write root that holds nothing that agentbox protects.

module.exports = function install(kit, exported) {
  const { p, paths, decide, report, channel } = kit;
  const { put } = kit.base;
  const { WASI } = exported;

  function folders(preopens) {
    const made = { __proto__: null };
    const names = p.keys(preopens);
    for (let i = 0; i < names.length; i += 1) {
      const text = p.String(preopens[names[i]]);
      const path = paths.resolve(text, true);
      const args = `${channel.member('path', decide.shown(path ?? text))},"flags":"wasi"`;
      const facts = { __proto__: null, path: text };
      let verdict = path === null ? 'its links lead in a circle' : decide.judge('write', path);
      if (path !== null && decide.isGuarded(path)) verdict = 'it holds files that agentbox protects';
      const error = typeof verdict === 'string'
        ? report.deny('fs.write', args, 'write', path ?? text, verdict, path === null ? '' : decide.fix('write', path, verdict), facts)
        : report.witness('fs.write', args, facts);
      if (error !== undefined) throw error;
      made[names[i]] = text;
    }
    return made;
  }

  const guarded = new p.Proxy(WASI, {
    __proto__: null,
    construct(target, args, newTarget) {
      const given = args[0];
      if (given === null || typeof given !== 'object') return p.construct(target, args, newTarget);
      const made = { __proto__: null };
      const names = ['version', 'args', 'env', 'preopens', 'returnOnExit', 'stdin', 'stdout', 'stderr'];
      for (let i = 0; i < names.length; i += 1) {
        const value = given[names[i]];
        if (value !== undefined) made[names[i]] = names[i] === 'preopens' && value !== null && typeof value === 'object' ? folders(value) : value;
      }
      return p.construct(target, [made], newTarget === guarded ? target : newTarget);
    },
  });
  put(WASI.prototype, 'constructor', guarded, true);
  put(exported, 'WASI', guarded);
};
