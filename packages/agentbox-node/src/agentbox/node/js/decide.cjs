'use strict';
// Decides file access from the welcome: built-in protections first, then the rules (docs/reference/architecture.md, "Who decides what").
// Opens no file and tells nobody; the same order of questions as the Python guard's `judge_file`.

const DEVICES = ['/dev/null', '/dev/zero', '/dev/full', '/dev/tty', '/dev/ptmx'];
const OWN_PROC_REFUSED = ['/mem', '/pagemap', '/clear_refs'];
const HIDDEN = "it is agentbox's own record of this run, which no rule opens";
const SEALED = "the policy, agentbox's own code and the interpreter are never writable, whatever the rules say; "
  + 'change them outside of the run, or install packages into an environment that the run makes (python -m venv)';

/** `own`: trees and files of this interpreter (readable, never writable); `pid` of this process. */
module.exports = function makeDecide(kit, welcome, own, pid) {
  const { p, form } = kit;
  const rules = form.compile(welcome.policy.rules);
  const name = welcome.policy.name || 'the policy';
  const devices = new p.Set(DEVICES);

  function trees(paths) {
    const exact = new p.Set();
    const prefixes = [];
    for (let i = 0; i < paths.length; i += 1) {
      p.setAdd(exact, paths[i]);
      p.push(prefixes, p.endsWith(paths[i], '/') ? paths[i] : `${paths[i]}/`);
    }
    return { __proto__: null, exact, prefixes };
  }

  function within(path, tree) {
    if (p.setHas(tree.exact, path)) return true;
    for (let i = 0; i < tree.prefixes.length; i += 1) if (p.startsWith(path, tree.prefixes[i])) return true;
    return false;
  }

  const privates = [];
  const privateTrees = [];
  const names = p.keys(welcome.writable);
  for (let i = 0; i < names.length; i += 1) {
    p.push(privates, { __proto__: null, name: names[i], tree: welcome.writable[names[i]] });
    p.push(privateTrees, welcome.writable[names[i]]);
  }
  const owned = trees(privateTrees);
  const hidden = trees(welcome.hidden);
  const sealed = trees([...welcome.sealed, ...own]);
  const readable = trees([...welcome.readable, ...own]);
  const listable = new p.Set(welcome.listable);

  function above(paths) {
    const found = new p.Set();
    for (let i = 0; i < paths.length; i += 1) {
      for (let path = form.parent(paths[i]); path !== ''; path = form.parent(path)) p.setAdd(found, path);
    }
    p.setAdd(found, '/');
    return found;
  }

  const guarded = above([...welcome.hidden, ...welcome.sealed, ...own]);
  const open = [...privateTrees, ...welcome.readable, ...welcome.listable, ...own, welcome.cwd];
  const programs = new p.Set();
  for (let i = 0; i < welcome.policy.rules.length; i += 1) {
    const rule = welcome.policy.rules[i];
    if (typeof rule.root === 'string') p.push(open, `${rule.root}/`);
    if (typeof rule.file === 'string') {
      p.setAdd(programs, rule.file);
      p.push(open, rule.file);
    }
  }
  const onTheWay = above(open);
  p.setAdd(onTheWay, welcome.cwd);

  function exists(path) {
    try {
      return kit.raw.lstat(kit.paths.native(path), false, undefined, false) !== undefined;
    } catch {
      return false;
    }
  }

  const protection = welcome.protected ? kit.makeProtection(p, exists, welcome.protected) : null; // else kernel layers hold it

  /** SILENT, RECORDED, or the reason of a denial. What all may open, none may call otherwise or give another mode (`changing`). */
  const SILENT = 0;
  const RECORDED = 1;
  function judge(access, path, changing = false) {
    if (within(path, hidden)) return HIDDEN;
    if (within(path, owned)) return RECORDED;
    if (!changing && (p.setHas(devices, path) || p.startsWith(path, '/dev/pts/'))) return SILENT;
    if (access === 'write') {
      if (within(path, sealed)) return SEALED;
    } else {
      if (within(path, readable)) return SILENT;
      if (isOwnProc(path)) return SILENT;
    }
    if (form.decide(access, path, rules) < 0) return form.reason(access, path, rules);
    return (access === 'write' && protection !== null && protection(path)) || RECORDED;
  }

  function isOwnProc(path) {
    if (path !== `/proc/${pid}` && !p.startsWith(path, `/proc/${pid}/`)) return false;
    for (let i = 0; i < OWN_PROC_REFUSED.length; i += 1) if (p.endsWith(path, OWN_PROC_REFUSED[i])) return false;
    return true;
  }

  /** Whether the facts of a path (stat, existence, link target) are free: it is readable, on the way to what is, or a program that may be started. */
  function mayLook(path) {
    if (p.setHas(onTheWay, path) || p.setHas(listable, path) || p.setHas(programs, path)) return true;
    // Whoever goes through a folder looks at all that it lists, agentbox's record of the run among it (`node --test`).
    if (within(path, hidden)) return form.decide('read', path, rules) >= 0;
    return typeof judge('read', path) === 'number';
  }

  /**
   * Whether a watch is free though reading is not: of agentbox's own record, of which one of the folder tells as much. One of a
   * folder in it would tell names, which kernel layers keep to themselves (`contained`).
   */
  function mayWatch(path, isFolder, contained) {
    return within(path, hidden) && mayLook(path) && (contained || !isFolder);
  }

  /** The path as the trace names it: the run's private folders by variable, as their real names differ in every run. */
  function shown(path) {
    for (let i = 0; i < privates.length; i += 1) {
      const { name: variable, tree } = privates[i];
      if (path === tree || p.startsWith(path, `${tree}/`)) return `$${variable}${p.slice(path, tree.length)}`;
    }
    return path;
  }

  /** The policy line that would allow it, or '' (built-in protections have none). */
  function fix(access, path, reason) {
    return reason === HIDDEN || reason === SEALED ? '' : form.fix(access, path, welcome.cwd);
  }

  return p.freeze({
    __proto__: null, SILENT, RECORDED, fix, judge, mayLook, mayWatch, name, shown,
    isBuiltIn: (reason) => reason === HIDDEN || reason === SEALED,
    isGuarded: (path) => p.setHas(guarded, path),
    isListable: (path) => p.setHas(listable, path),
    isPrivate: (path) => within(path, owned),
  });
};
