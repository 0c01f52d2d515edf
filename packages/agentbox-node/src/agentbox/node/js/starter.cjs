'use strict';
// What a child program, a worker thread or a replaced process is started with: the one file, its words, a complete environment.
// The supervisor decides; this only makes everything plain first, so that what is judged is what runs.

// Those by which Node itself writes files at the end of a thread (src/inspector_profiler.cc, src/compile_cache.cc).
const WRITING = ['NODE_V8_COVERAGE', 'NODE_COMPILE_CACHE'];

/** `initial` is this process's environment as the run gave it. */
module.exports = function makeStarter(kit, welcome, initial) {
  const { p, raw, paths, report, channel } = kit;
  const { member } = channel;
  const judged = p.setOf(welcome.judged.names);
  const prefixes = welcome.judged.prefixes;
  const required = p.keys(welcome.env);

  /** Whether the supervisor judges what a program is started with by this variable (docs/spec/channel.md, `judged`). */
  function isJudged(name) {
    if (p.hasOwn(welcome.env, name) && name !== 'NODE_OPTIONS') return false; // it has the guard's own value
    if (p.setHas(judged, name)) return true;
    for (let i = 0; i < prefixes.length; i += 1) if (p.startsWith(name, prefixes[i])) return true;
    return false;
  }

  /** The guard's value of a variable that every child carries; of the caller's own NODE_OPTIONS the harmless ones follow it. */
  function combined(name, own, given) {
    if (name !== 'NODE_OPTIONS' || given === undefined || given === own) return own;
    let made = own;
    const words = kit.form.split(p.startsWith(given, own) ? p.slice(given, own.length) : given, ' ');
    for (let i = 0; i < words.length; i += 1) if (kit.isHarmlessOption(words[i])) made += ` ${words[i]}`;
    return made;
  }

  /** A child's environment from pairs `NAME=value`: {pairs} complete, and those of them that are `judged`. */
  function environment(given) {
    const names = [];
    const values = new p.Map();
    for (let i = 0; i < given.length; i += 1) {
      const pair = p.String(given[i]);
      const at = p.indexOf(pair, '=', 1);
      if (at < 0) continue;
      const name = p.slice(pair, 0, at);
      if (p.mapGet(values, name) === undefined) p.push(names, name);
      p.mapSet(values, name, p.slice(pair, at + 1));
    }
    for (let i = 0; i < required.length; i += 1) {
      const name = required[i];
      if (p.mapGet(values, name) === undefined) p.push(names, name);
      p.mapSet(values, name, combined(name, welcome.env[name], p.mapGet(values, name)));
    }
    const pairs = [];
    const told = [];
    for (let i = 0; i < names.length; i += 1) {
      const pair = `${names[i]}=${p.mapGet(values, names[i])}`;
      p.push(pairs, pair);
      if (isJudged(names[i])) p.push(told, pair);
    }
    return { __proto__: null, pairs, judged: told, path: p.mapGet(values, 'PATH') };
  }

  function isProgram(path) {
    try {
      raw.access(paths.native(path), 1);
      const facts = raw.stat(paths.native(path), false, undefined, false);
      return facts !== undefined && (facts[1] & 0o170000) === 0o100000;
    } catch {
      return false;
    }
  }

  function isThere(path) {
    try {
      raw.access(paths.native(path), 0);
      return true;
    } catch {
      return false;
    }
  }

  /** The file that execvp(3) would run, absolute, or one of this name that it could not run; '' when there is none. */
  function locate(file, cwd, search) {
    if (p.includes(file, '/')) {
      const full = file[0] === '/' ? file : `${cwd}/${file}`;
      return isThere(full) ? full : '';
    }
    const folders = kit.form.split(search ?? '/usr/local/bin:/bin:/usr/bin', ':');
    let there = '';
    for (let i = 0; i < folders.length; i += 1) {
      const folder = folders[i] === '' ? cwd : folders[i][0] === '/' ? folders[i] : `${cwd}/${folders[i]}`;
      if (isProgram(`${folder}/${file}`)) return `${folder}/${file}`;
      if (there === '' && isThere(`${folder}/${file}`)) there = `${folder}/${file}`;
    }
    return there;
  }

  function words(list) {
    const made = [];
    if (p.isArray(list)) for (let i = 0; i < list.length; i += 1) p.push(made, p.String(list[i]));
    return made;
  }

  function listed(name, list) {
    let made = '';
    for (let i = 0; i < list.length; i += 1) made += `${i > 0 ? ',' : ''}${p.quote(list[i])}`;
    return `"${name}":[${made}]`;
  }

  /** Judge a start: {file, args, pairs}, all plain; or {error}, or {missing}. */
  function judge(file, list, directory, given) {
    const name = p.String(file);
    const args = words(list);
    if (args.length === 0) p.push(args, name);
    const cwd = directory === undefined || directory === null ? kit.cwd() : p.String(directory);
    const folder = cwd[0] === '/' ? cwd : `${kit.cwd()}/${cwd}`;
    const env = environment(p.isArray(given) ? words(given) : own());
    const facts = { __proto__: null, syscall: `spawn ${name}`, path: name };
    const full = locate(name, folder, env.path);
    if (full === '') return { __proto__: null, missing: true };
    const text = `${member('file', full, false)},${listed('argv', args)},${member('cwd', folder, false)},"env_ok":true,`
      + `${member('path', env.path ?? '', false)},${listed('variables', env.judged)}`;
    const { error } = report.inquire('proc.exec', text, facts);
    if (error !== undefined) return { __proto__: null, error };
    return { __proto__: null, error: undefined, missing: false, file: full, args, cwd: directory === undefined || directory === null ? undefined : cwd, pairs: env.pairs };
  }

  /** This process's variables as pairs. */
  function own() {
    const pairs = [];
    const names = p.keys(kit.env);
    for (let i = 0; i < names.length; i += 1) p.push(pairs, `${names[i]}=${kit.env[names[i]]}`);
    return pairs;
  }

  /** A variable in `source`, not of the run's making, by which a thread would write files unseen; '' if there is none. */
  function writing(source = kit.env) {
    for (let i = 0; i < WRITING.length && !kit.contained; i += 1) {
      const value = source[WRITING[i]];
      if (value !== undefined && value !== '' && initial[WRITING[i]] !== value) return `the variable ${WRITING[i]} would make it write files that no guard sees`;
    }
    return '';
  }

  function refuseThread(reason) {
    const error = report.deny('proc.exec', '"file":"worker"', 'exec', 'a worker thread', reason, '', { __proto__: null });
    if (error !== undefined) throw error;
  }

  /** Make this process's environment, which a thread is about to copy, fit for it: the guard's variables put back, none that writes. */
  function restore() {
    const problem = writing();
    if (problem !== '') refuseThread(problem);
    for (let i = 0; i < required.length; i += 1) {
      const name = required[i];
      kit.env[name] = combined(name, welcome.env[name], kit.env[name]);
    }
  }

  return p.freeze({ __proto__: null, combined, environment, judge, own, refuseThread, required, restore, words, writing });
};

