'use strict';
// What a child program, a worker thread or a replaced process is started with: the one file, its words, a complete environment.
// The supervisor decides; this only makes everything plain first, so that what is judged is what runs.

const INJECTING = [
  'BASH_ENV', 'ENV', 'NODE_PATH', 'PERL5OPT', 'PERL5LIB', 'PERLLIB', 'RUBYOPT', 'RUBYLIB', 'GCONV_PATH', 'LUA_INIT', 'JAVA_TOOL_OPTIONS',
  '_JAVA_OPTIONS', 'JDK_JAVA_OPTIONS', 'GIT_SSH', 'GIT_SSH_COMMAND', 'GIT_EXEC_PATH', 'GIT_EDITOR', 'GIT_PAGER', 'GIT_SEQUENCE_EDITOR',
  'GIT_ASKPASS', 'SSH_ASKPASS', 'GIT_EXTERNAL_DIFF', 'GIT_PROXY_COMMAND', 'GIT_TEMPLATE_DIR', 'GIT_CONFIG_GLOBAL', 'GIT_CONFIG_SYSTEM',
  'GIT_CONFIG_COUNT', 'GIT_CONFIG_PARAMETERS', 'PYTHONHOME', 'PYTHONSTARTUP', 'PYTHONUSERBASE', 'PYTHONPYCACHEPREFIX', 'PYTHONEXECUTABLE',
  'PYTHONPLATLIBDIR', 'PYTHONINSPECT', 'PYTHONBREAKPOINT', 'NODE_REDIRECT_WARNINGS', 'NODE_V8_COVERAGE', 'NODE_COMPILE_CACHE',
  'NODE_EXTRA_CA_CERTS', 'NODE_ICU_DATA', 'NODE_REPL_HISTORY', 'NODE_REPL_EXTERNAL_MODULE', 'OPENSSL_CONF', 'OPENSSL_MODULES',
  'OPENSSL_ENGINES', 'SSL_CERT_FILE', 'SSL_CERT_DIR',
];
// Those by which Node itself writes files at the end of a thread (src/inspector_profiler.cc, src/compile_cache.cc).
const WRITING = ['NODE_V8_COVERAGE', 'NODE_COMPILE_CACHE'];
// Programs that a child starts by name when it wants something of its user, and those that only say or do nothing.
const ASKED = ['GIT_PAGER', 'GIT_EDITOR', 'GIT_SEQUENCE_EDITOR', 'GIT_ASKPASS', 'SSH_ASKPASS'];
const QUIET = ['', ':', 'cat', 'echo', 'false', 'true'];
const PREFIXES = ['LD_', 'GIT_CONFIG_KEY_', 'GIT_CONFIG_VALUE_'];

/** `initial` is this process's environment as the run gave it. */
module.exports = function makeStarter(kit, welcome, initial) {
  const { p, raw, paths, report, channel } = kit;
  const { member } = channel;
  const injecting = p.setOf(INJECTING);
  const asked = p.setOf(ASKED);
  const quiet = p.setOf(QUIET);
  const required = p.keys(welcome.env);

  function isInjecting(name, value) {
    if (p.hasOwn(initial, name) && initial[name] === value) return false; // passed on as the run itself got it
    if (p.setHas(asked, name) && p.setHas(quiet, value)) return false;
    if (p.setHas(injecting, name)) return true;
    for (let i = 0; i < PREFIXES.length; i += 1) if (p.startsWith(name, PREFIXES[i])) return true;
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

  /** A child's environment from pairs `NAME=value`: {pairs} complete, or {problem} that keeps it from being started. */
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
    for (let i = 0; i < names.length; i += 1) {
      const value = p.mapGet(values, names[i]);
      if (!p.hasOwn(welcome.env, names[i]) && isInjecting(names[i], value)) {
        return { __proto__: null, problem: `the variable ${names[i]} would make it load or write other files` };
      }
      p.push(pairs, `${names[i]}=${value}`);
    }
    return { __proto__: null, problem: '', pairs, path: p.mapGet(values, 'PATH') };
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

  /** The file that execvp(3) would run, absolute; '' when there is none, and `there` when there is one that cannot be run. */
  function locate(file, cwd, search) {
    if (p.includes(file, '/')) {
      const full = file[0] === '/' ? file : `${cwd}/${file}`;
      return isThere(full) ? full : '';
    }
    const folders = kit.form.split(search ?? '/usr/local/bin:/bin:/usr/bin', ':');
    for (let i = 0; i < folders.length; i += 1) {
      const folder = folders[i] === '' ? cwd : folders[i][0] === '/' ? folders[i] : `${cwd}/${folders[i]}`;
      if (isProgram(`${folder}/${file}`)) return `${folder}/${file}`;
    }
    return '';
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
    if (env.problem !== '') {
      const text = `${member('file', name)},${listed('argv', args)}`;
      return { __proto__: null, error: report.deny('proc.exec', text, 'exec', name, env.problem, '', facts) };
    }
    const full = locate(name, folder, env.path);
    if (full === '') return { __proto__: null, missing: true };
    const text = `${member('file', full, false)},${listed('argv', args)},${member('cwd', folder, false)},"env_ok":true`;
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

  /** A variable of this process, not of the run's making, by which a thread would write files unseen; '' if there is none. */
  function writing() {
    for (let i = 0; i < WRITING.length && !kit.contained; i += 1) {
      const value = kit.env[WRITING[i]];
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

