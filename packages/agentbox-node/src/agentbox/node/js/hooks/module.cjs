'use strict';
// node:module beside look-ups: the compile cache is written by native code, and loader hooks run in a thread of their own.
// That thread arms itself as workers do; it copies this process's environment, so the guard's variables are put back first.

module.exports = function install(kit, Module) {
  const { p, files, paths, starter } = kit;
  const { put, disguise, wrap, publicPath } = kit.base;

  wrap(Module, 'enableCompileCache', (original) => function enableCompileCache(...args) {
    const given = args[0] !== null && typeof args[0] === 'object' ? args[0].directory : args[0];
    const directory = given === undefined ? `${kit.env.TMPDIR ?? '/tmp'}/node-compile-cache` : publicPath(given);
    if (directory === null) return p.apply(original, this, args);
    const error = files.checkWrite(paths.plain(directory).text, 'compile-cache', 'mkdir');
    if (error !== undefined) throw error;
    return p.apply(original, this, [directory]);
  });

  const { register } = Module;
  if (typeof register === 'function') {
    put(Module, 'register', disguise((specifier, parent, options) => {
      const name = typeof specifier === 'string' ? specifier : kit.hrefOf(specifier);
      let base = parent;
      let more = options;
      if (base !== null && typeof base === 'object' && !kit.isURL(base)) {
        more = base;
        base = more.parentURL;
      }
      if (base !== undefined && base !== null && typeof base !== 'string') base = kit.hrefOf(base);
      const given = { __proto__: null, parentURL: base, data: more?.data, transferList: more?.transferList };
      starter.restore();
      return kit.threads.open(() => register(name, base, given));
    }, register));
  }
};
