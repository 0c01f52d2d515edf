'use strict';
// Module look-ups: package.json files are read by native code, so what a look-up answers is judged before it is told.
// Module sources themselves are read through the fs binding, where they are judged like any other file.

module.exports = function install(kit, Module, when) {
  const { p, files } = kit;
  const { wrap } = kit.base;

  function checked(path) {
    if (typeof path !== 'string' || path[0] !== '/') return path; // a built-in module
    const error = files.checkLook(path, 'resolve', true);
    if (error !== undefined && error.code !== 'ENOENT') throw error;
    return path;
  }

  function judged(name) {
    wrap(Module, name, (original) => function find(...args) {
      return checked(p.apply(original, this, args));
    });
  }

  if (when === 'Module') {
    judged('_resolveFilename');
    judged('_findPath');
  } else {
    judged('findPackageJSON');
  }
};
