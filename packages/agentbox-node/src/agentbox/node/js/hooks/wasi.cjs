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
  lockNative();
  put(WASI.prototype, 'constructor', guarded, true);
  put(exported, 'WASI', guarded);

  /** Reach the native class through an instance, as it is set and before anybody sees it, and keep it from being made another time. */
  function lockNative() {
    if (!kit.contained && p.keys(p.ObjectPrototype).length > 0) throw new p.Error('a property of Object.prototype would be shown its native object'); // for ... in
    let locked = false;
    function Once() {}
    Once.prototype = new p.Proxy(WASI.prototype, {
      __proto__: null,
      set(target, key, value, receiver) {
        if (key === 'wasiImport') {
          put(p.prototypeOf(value), 'constructor', p.Error, true);
          locked = true;
        }
        return p.reflectDefine(receiver, key, { __proto__: null, value, writable: true, enumerable: true, configurable: true });
      },
    });
    p.construct(WASI, [{ __proto__: null, version: 'preview1' }], Once);
    if (!locked) throw new p.Error('it opens folders in a way that the guard does not know');
  }
};
