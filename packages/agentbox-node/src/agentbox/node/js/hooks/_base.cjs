'use strict';
// What hooks share: putting a checked function in a place where Node finds it, and handing a refusal to whoever asked.
// A hook is a file of this folder that exports `install(kit, subject, name)`, and a row of index.cjs that says what it is installed in.

module.exports = function makeBase(kit) {
  const { p } = kit;

  /** Set a property whether or not it could be assigned; `locked` keeps the agent from setting it again. */
  function put(object, name, value, locked = false) {
    const old = p.descriptor(object, name);
    p.defineProperty(object, name, {
      __proto__: null, value, writable: !locked, configurable: !locked, enumerable: old === undefined ? false : old.enumerable,
    });
  }

  /** Name and dress a function as the one that it stands for: name, length, promisify symbols, `.native` and the like. */
  function disguise(made, original) {
    const names = p.ownKeys(original);
    for (let i = 0; i < names.length; i += 1) {
      if (names[i] === 'prototype' || names[i] === 'arguments' || names[i] === 'caller') continue;
      p.reflectDefine(made, names[i], p.descriptor(original, names[i]));
    }
    return made;
  }

  /** Replace `object[name]` by `make(original)`, dressed as the original; nothing where this Node has no such function. */
  function wrap(object, name, make, locked = false) {
    const original = object[name];
    if (typeof original !== 'function') return;
    put(object, name, disguise(make(original), original), locked);
  }

  /** A function that throws a refusal. In mode observe, which refuses nothing, the original runs. */
  function refuse(object, name, title, reason, locked = false) {
    if (p.descriptor(object, name)?.configurable === false) return; // refused before
    wrap(object, name, (original) => function refused(...args) {
      const error = kit.report.forbid(title, reason);
      if (error !== undefined) throw error;
      return new.target === undefined ? p.apply(original, this, args) : p.construct(original, args, new.target);
    }, locked);
  }

  /** Arguments with a path at `at` made plain: its text, or null for a type that Node refuses itself. Changes `args`. */
  function takePath(args, at) {
    const found = kit.paths.plain(args[at]);
    if (found === null) return null;
    if (found.text === kit.probe) kit.probed += 1;
    args[at] = found.value;
    return found.text;
  }

  /**
   * A path as the public functions take it, read once: a text, a Buffer, or what Node takes for a file: URL, which is anything with
   * the members of one (isURL in lib/internal/url.js), and throws if it is none. null for what is no object: Node refuses it itself.
   */
  function publicPath(value) {
    if ((value !== null && typeof value === 'object' && p.viewTag(value) === undefined) || typeof value === 'function') {
      const href = kit.isURL(value) ? kit.hrefOf(value) : value.href;
      if (typeof href !== 'string') throw badType();
      return kit.fileURLToPath(href);
    }
    const found = kit.paths.plain(value);
    return found === null ? null : found.value;
  }

  function badType() {
    const error = new p.TypeError('The "path" argument must be of type string or an instance of Buffer or URL');
    kit.report.define(error, 'code', 'ERR_INVALID_ARG_TYPE');
    return error;
  }

  /** The object of Node's that owns a handle, by its symbol `owner_symbol`; undefined before it has one. */
  function ownerOf(handle) {
    const symbols = p.symbolsOf(handle);
    for (let i = 0; i < symbols.length; i += 1) {
      if (symbols[i].description === 'owner_symbol') return handle[symbols[i]];
    }
    return undefined;
  }

  /** Explain the next `error` event of an emitter that tells of EACCES, which Node is about to make from a bare error number. */
  function explainNext(emitter, refusal) {
    if (emitter === null || typeof emitter !== 'object' || typeof emitter.emit !== 'function') return;
    const own = p.descriptor(emitter, 'emit');
    const { emit } = emitter;
    put(emitter, 'emit', function explained(...args) {
      if (args[0] === 'error' && args[1]?.code === 'EACCES') {
        if (own === undefined) delete emitter.emit;
        else p.reflectDefine(emitter, 'emit', own);
        kit.report.explain(args[1], refusal);
      }
      return p.apply(emit, this, args);
    });
  }

  return p.freeze({ __proto__: null, badType, disguise, explainNext, ownerOf, publicPath, put, refuse, takePath, wrap });
};
