'use strict';
// Module look-ups: package.json files are read by native code, so each that a look-up would open is judged before it, and its answer after.
// Module sources themselves are read through the fs binding, where they are judged like any other file.

module.exports = function install(kit, Module, when) {
  const { p, files, raw, paths: resolver, form } = kit;
  const { put, wrap } = kit.base;

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

  if (when !== 'Module') {
    judged('findPackageJSON');
    return;
  }
  if (kit.contained) { // the kernel layers see what is opened
    judged('_resolveFilename');
    judged('_findPath');
    return;
  }

  /** An absolute path by its letters alone, as node:path has it: Node looks for parts of a package by those. */
  function normal(text) {
    const made = [];
    const names = form.split(text[0] === '/' ? text : `${kit.cwd()}/${text}`, '/');
    for (let i = 0; i < names.length; i += 1) {
      if (names[i] === '..') made.length = made.length > 0 ? made.length - 1 : 0;
      else if (names[i] !== '' && names[i] !== '.') p.push(made, names[i]);
    }
    return `/${p.join(made, '/')}`;
  }

  function isThere(path) {
    try {
      return raw.stat(resolver.native(path), false, undefined, false) !== undefined;
    } catch (error) {
      return error.code !== 'ENOENT' && error.code !== 'ENOTDIR';
    }
  }

  /** The refusal of the package.json of a folder; undefined where there is none, or none to refuse. */
  function checkPackage(folder) {
    const file = folder === '/' ? '/package.json' : `${folder}/package.json`;
    return isThere(file) ? files.checkLook(file, 'open', true) : undefined;
  }

  /** The package.json of the folder that holds `file`, or the nearest above it: its refusal, as above. */
  function checkScope(file) {
    for (let folder = form.parent(normal(file)); ; folder = form.parent(folder)) {
      if (folder === '' || p.endsWith(folder, '/node_modules')) return undefined;
      if (isThere(`${folder}/package.json`)) return checkPackage(folder);
    }
  }

  /** What a look-up of `request` in `folder` would open (_findPath of lib/internal/modules/cjs/loader.js). */
  function checkCandidate(folder, request) {
    const names = form.split(request, '/');
    const name = request[0] === '@' && names.length > 1 ? `${names[0]}/${names[1]}` : names[0];
    if (request[0] !== '/' && name !== '' && name[0] !== '.') {
      const error = checkPackage(normal(`${folder}/${name}`));
      if (error !== undefined) return error;
    }
    return checkPackage(normal(request[0] === '/' ? request : `${folder}/${request}`));
  }

  const path = kit.builtin('path');
  const functions = [];
  const names = p.keys(path);
  for (let i = 0; i < names.length; i += 1) if (typeof path[names[i]] === 'function') p.push(functions, names[i]);
  const own = { __proto__: null };
  for (let i = 0; i < functions.length; i += 1) own[functions[i]] = path[functions[i]];
  const found = { __proto__: null }; // Node's own notes of what was found, in place of those that the agent can reach

  /** Call a function while what Node's look-up goes by is Node's own, so that it opens what was judged. */
  function undisturbed(run) {
    const extensions = { __proto__: null };
    const known = p.keys(Module._extensions);
    for (let i = 0; i < known.length; i += 1) extensions[known[i]] = true;
    const changed = [];
    function hold(object, name, value) {
      const old = p.descriptor(object, name);
      if (old !== undefined && old.value === value) return;
      p.push(changed, [object, name, old]);
      put(object, name, value);
    }
    try {
      for (let i = 0; i < functions.length; i += 1) hold(path, functions[i], own[functions[i]]);
      hold(Module, '_extensions', extensions);
      hold(Module, '_pathCache', found);
      return run();
    } finally {
      for (let i = changed.length - 1; i >= 0; i -= 1) {
        if (changed[i][2] === undefined) delete changed[i][0][changed[i][1]];
        else p.reflectDefine(changed[i][0], changed[i][1], changed[i][2]);
      }
    }
  }

  wrap(Module, '_findPath', (original) => function _findPath(request, folders, isMain) {
    if (typeof request !== 'string') return p.apply(original, this, [request, folders, isMain]);
    const list = request[0] === '/' ? [''] : [];
    for (let i = 0; list[0] !== '' && p.isArray(folders) && i < folders.length; i += 1) p.push(list, p.String(folders[i]));
    for (let i = 0; i < list.length; i += 1) {
      const error = checkCandidate(list[i], request);
      if (error !== undefined) throw error;
      const answer = undisturbed(() => p.apply(original, this, [request, [list[i]], isMain]));
      if (answer) return checked(answer);
    }
    return false;
  });

  const { isProxy } = kit.builtin('util').types;

  /** The module that asks, as Node may know it: without a name where that would have it open a package.json that is not to be read. */
  function asker(request, parent) {
    if (parent === null || parent === undefined || request[0] === '.' || request[0] === '/') return parent;
    const isPlain = !isProxy(parent) && p.hasOwn(parent, 'filename') && p.hasOwn(p.descriptor(parent, 'filename'), 'value');
    const { filename, paths } = parent;
    const error = typeof filename === 'string' ? checkScope(filename) : undefined;
    if (error !== undefined && request[0] === '#') throw error;
    if (isPlain && typeof filename === 'string' && error === undefined) return parent;
    return { __proto__: null, id: '.', filename: error === undefined && typeof filename === 'string' ? filename : undefined, paths };
  }

  wrap(Module, '_resolveFilename', (original) => function _resolveFilename(...args) {
    if (typeof args[0] === 'string') args[1] = asker(args[0], args[1]);
    return checked(p.apply(original, this, args));
  });
};
