'use strict';
// Files: every operation of node:fs in all its forms, judged in the binding that all of them, and the module loaders, end in.
// Decides on the object that a path names, never on its spelling, and passes on exactly what it has decided about.

const UNCLEAR = 'a path must be a text or bytes, without NUL, whose links do not lead in a circle';

module.exports = function install(kit, binding) {
  const { p, raw, paths, report, channel, decide, digest, form } = kit;
  const { badType, put, disguise, takePath, wrap } = kit.base;
  const { member } = channel;
  const { O_APPEND, O_CREAT, O_EXCL, O_RDWR, O_TRUNC, O_WRONLY } = kit.constants;
  const O_ACCMODE = 3;
  const O_PATH = 0o10000000; // asm-generic/fcntl.h, Linux 2.6.39
  const O_TMPFILE = 0o20000000; // without the O_DIRECTORY that is part of it, Linux 3.11
  const MODES = new p.Map([
    [O_WRONLY | O_CREAT | O_TRUNC, 'w'], [O_WRONLY | O_CREAT | O_APPEND, 'a'], [O_WRONLY | O_CREAT | O_EXCL | O_TRUNC, 'x'],
    [O_RDWR, 'r+'], [O_RDWR | O_CREAT | O_TRUNC, 'w+'], [O_RDWR | O_CREAT | O_APPEND, 'a+'], [O_RDWR | O_CREAT | O_EXCL | O_TRUNC, 'x+'],
  ]);

  // --- delivering ---

  /** Where among a binding's arguments the request object or the promise symbol is, or undefined for a synchronous call. */
  function requestOf(args) {
    for (let i = 1; i < args.length; i += 1) {
      const value = args[i];
      if (value === raw.kUsePromises) return value;
      if (value !== null && typeof value === 'object' && p.isPrototypeOf(raw.FSReqCallback.prototype, value)) return value;
    }
    return undefined;
  }

  function deliver(error, args) {
    const request = requestOf(args);
    if (request === undefined) throw error;
    if (request === raw.kUsePromises) return p.reject(error);
    kit.nextTick(() => p.apply(request.oncomplete, request, [error]));
    return undefined;
  }

  function missing(name, text) {
    return report.failure(`ENOENT: no such file or directory, ${name} '${text}'`, 2, { __proto__: null, syscall: name, path: text });
  }

  function present(name, text) {
    return report.failure(`EEXIST: file already exists, ${name} '${text}'`, 17, { __proto__: null, syscall: name, path: text });
  }

  // --- judging: each returns undefined to go on, or the Error ---

  function unclear(op, access, facts) {
    return report.deny(op, member('path', '?'), access, '?', UNCLEAR, '', facts);
  }

  /** Whether nothing is at `path`, not even a broken link. */
  function isAbsent(path) {
    try {
      return raw.lstat(paths.native(path), false, undefined, false) === undefined;
    } catch (error) {
      return error.code === 'ENOENT';
    }
  }

  /** Refuse a file access. Reading what is not there fails as it always does: programs probe for optional files. */
  function reject(op, access, path, reason, args, facts) {
    if (access !== 'write' && !decide.isBuiltIn(reason) && isAbsent(path)) return missing(facts.syscall, facts.path);
    return report.deny(op, args, access, path, reason, decide.fix(access, path, reason), facts);
  }

  function check(op, access, path, args, facts) {
    const judged = decide.judge(access, path, op !== 'fs.read' && op !== 'fs.write' && op !== 'fs.list');
    if (typeof judged === 'string') return reject(op, access, path, judged, args, facts);
    return judged === decide.RECORDED ? report.witness(op, args, facts) : undefined;
  }

  function factsOf(syscall, text) {
    return { __proto__: null, syscall, path: text };
  }

  /** In place of `digest` under kernel layers, whose supervisor reads the file itself: only whether it is there and a folder. */
  function glance(path) {
    try {
      const found = raw.stat(paths.native(path), false, undefined, false);
      if (found === undefined) return { __proto__: null, sha256: null, size: -1 };
      return { __proto__: null, sha256: null, size: (found[1] & 0o170000) === 0o040000 ? -2 : 0 };
    } catch {
      return { __proto__: null, sha256: null, size: -1 };
    }
  }

  function checkRead(text, syscall) {
    const facts = factsOf(syscall, text);
    const path = paths.resolve(text, true);
    if (path === null) return unclear('fs.read', 'read', facts);
    const judged = decide.judge('read', path);
    if (judged === decide.SILENT) return undefined;
    if (judged !== decide.RECORDED) {
      if (glance(path).size === -2) return check('fs.list', 'list', path, member('path', decide.shown(path)), facts);
      return reject('fs.read', 'read', path, judged, member('path', path), facts);
    }
    const named = member('path', decide.shown(path));
    const { sha256, size } = kit.contained ? glance(path) : digest(path);
    if (size === -2) return report.witness('fs.list', named, facts);
    if (size === -1) return report.witness('fs.read', `${named},"absent":true`, facts);
    if (kit.contained) return report.witness('fs.read', named, facts);
    return report.witness('fs.read', `${named},${member('sha256', sha256)},"size":${size}`, facts);
  }

  function checkWrite(text, flags, syscall) {
    const facts = factsOf(syscall, text);
    const path = paths.resolve(text, true);
    if (path === null) return unclear('fs.write', 'write', facts);
    const mode = typeof flags === 'string' ? flags : p.mapGet(MODES, flags) ?? `0o${p.numberToString(flags, 8)}`;
    return check('fs.write', 'write', path, `${member('path', decide.shown(path))},${member('flags', mode)},${before(path)}`, facts);
  }

  /** What is there before a write: replay starts from it. */
  function before(path) {
    try {
      const found = raw.lstat(paths.native(path), false, undefined, false);
      return found === undefined ? '"absent":true' : `"size":${found[8]}`;
    } catch {
      return '"absent":true';
    }
  }

  function checkOpen(text, flags, syscall) {
    const writes = (flags & O_ACCMODE) !== 0 || (flags & (O_CREAT | O_TRUNC | O_APPEND | O_TMPFILE)) !== 0;
    if ((flags & O_PATH) !== 0 && !writes) return checkLook(text, syscall, true);
    return writes ? checkWrite(text, flags, syscall) : checkRead(text, syscall);
  }

  function checkList(text, syscall) {
    const facts = factsOf(syscall, text);
    const path = paths.resolve(text, true);
    if (path === null) return unclear('fs.list', 'list', facts);
    if (decide.isListable(path)) return undefined;
    return check('fs.list', 'list', path, member('path', decide.shown(path)), facts);
  }

  function checkWatch(text) {
    const path = paths.resolve(text, true);
    if (path !== null && decide.mayWatch(path, glance(path).size === -2, kit.contained)) return undefined;
    return checkList(text, 'watch');
  }

  /** Facts about a file (size, times, whether it is there) need reading rights, or that the path leads to something readable. */
  function checkLook(text, syscall, follow) {
    const path = paths.resolve(text, follow);
    if (path === null || decide.mayLook(path)) return undefined; // a loop fails on its own
    const facts = factsOf(syscall, text);
    return reject('fs.read', 'read', path, decide.judge('read', path), member('path', path), facts);
  }

  /** One changed path. What is removed is the link itself; what is changed in place must be allowed as link and as target. */
  function checkChange(op, text, syscall, removes) {
    const facts = factsOf(syscall, text);
    let path = paths.resolve(text, false);
    if (path === null) return unclear(op, 'write', facts);
    if (op === 'fs.rmdir' && decide.isGuarded(path)) return protects(op, path, member('path', path), facts);
    if (!removes) {
      const target = paths.resolve(text, true);
      if (target === null) return unclear(op, 'write', facts);
      if (target !== path && typeof decide.judge('write', target, true) === 'string') path = target;
    }
    const exists = op === 'fs.mkdir' && !isAbsent(path); // it fails, and is no folder of this run's making
    if (exists && decide.mayLook(path) && typeof decide.judge('write', path, true) === 'string') return present(syscall, text); // no rule is missing
    return check(op, 'write', path, `${member('path', decide.shown(path))}${exists ? ',"exists":true' : ''}`, facts);
  }

  function protects(op, path, args, facts) {
    return report.deny(op, args, 'write', path, 'it holds files that agentbox protects', '', facts);
  }

  function checkDescriptor(op, fd, syscall) {
    const path = paths.ofDescriptor(fd);
    if (path === null || path[0] !== '/') return undefined; // closed, a pipe or a socket
    return check(op, 'write', path, member('path', decide.shown(path)), factsOf(syscall, path));
  }

  /** rename and link: both names must be writable, as a hard link gives the file a second name to be written by. */
  function checkPair(op, from, to, syscall) {
    const facts = { __proto__: null, syscall, path: from, dest: to };
    const old = paths.resolve(from, false);
    const made = paths.resolve(to, false);
    if (old === null || made === null) return unclear(op, 'write', facts);
    const args = `${member('path', decide.shown(old))},${member('to', decide.shown(made))}`;
    if (op === 'fs.rename' && decide.isGuarded(old)) return protects(op, old, args, facts);
    const judged = [old, op === 'fs.link' ? paths.resolve(from, true) ?? old : old, made];
    for (let i = 0; i < judged.length; i += 1) {
      const verdict = decide.judge('write', judged[i], true);
      if (typeof verdict === 'string') return reject(op, 'write', judged[i], verdict, args, facts);
    }
    return check(op, 'write', made, args, facts);
  }

  /** A symbolic link: its name must be writable, and where it leads must be something that the policy opens at all. */
  function checkSymlink(target, text, syscall) {
    const facts = { __proto__: null, syscall, path: target, dest: text };
    const made = paths.resolve(text, false);
    if (made === null) return unclear('fs.symlink', 'write', facts);
    const leads = paths.resolve(target[0] === '/' ? target : `${form.parent(made)}/${target}`, true);
    const args = `${member('path', target)},${member('to', decide.shown(made))}`;
    if (leads !== null && typeof decide.judge('write', made, true) === 'number') {
      const verdict = decide.judge('read', leads);
      if (typeof verdict === 'string') return reject('fs.symlink', 'read', leads, verdict, args, facts);
    }
    return check('fs.symlink', 'write', made, args, facts);
  }

  /** mkdir: with `recursive` each missing folder on the way, outermost first. */
  function checkMkdir(text, recursive, syscall) {
    if (!recursive) return checkChange('fs.mkdir', text, syscall, true);
    const path = paths.resolve(text, true);
    if (path === null) return unclear('fs.mkdir', 'write', factsOf(syscall, text));
    if (!isAbsent(path)) { // nothing will be made
      return typeof decide.judge('write', path) === 'string' ? checkLook(text, syscall, true) : checkChange('fs.mkdir', path, syscall, true);
    }
    const above = form.parent(path);
    const failed = above !== '' && isAbsent(above) ? checkMkdir(above, true, syscall) : undefined;
    return failed ?? checkChange('fs.mkdir', path, syscall, true);
  }

  function entries(path) {
    try {
      const found = raw.readdir(paths.native(path), 'buffer', true);
      return found;
    } catch {
      return [[], []];
    }
  }

  const DIRECTORY = 2; // uv_dirent_type_t: UV_DIRENT_DIR

  /** Everything below a folder, before one native call removes it all. */
  function checkRemoveTree(text, syscall) {
    const path = paths.resolve(text, false);
    if (path === null) return unclear('fs.remove', 'write', factsOf(syscall, text));
    if (decide.isGuarded(path)) return protects('fs.rmdir', path, member('path', path), factsOf(syscall, text));
    let isFolder = false;
    try {
      const found = raw.lstat(paths.native(path), false, undefined, false);
      if (found === undefined) return typeof decide.judge('write', path) === 'string' ? checkLook(text, syscall, false) : undefined;
      isFolder = (found[1] & 0o170000) === 0o040000;
    } catch {
      return checkChange('fs.remove', path, syscall, true);
    }
    if (!isFolder) return checkChange('fs.remove', path, syscall, true);
    const found = entries(path);
    for (let i = 0; i < found[0].length; i += 1) {
      const failed = checkRemoveTree(`${path}/${paths.textOf(found[0][i])}`, syscall);
      if (failed !== undefined) return failed;
    }
    return checkChange('fs.rmdir', path, syscall, true);
  }

  /** Everything below a folder, before one native call copies it all. */
  function checkCopyTree(from, to, follow, syscall) {
    const failed = checkList(from, syscall) ?? (isAbsent(to) ? checkChange('fs.mkdir', to, syscall, true) : undefined);
    if (failed !== undefined) return failed;
    const found = entries(from);
    for (let i = 0; i < found[0].length; i += 1) {
      const name = paths.textOf(found[0][i]);
      const one = `${from}/${name}`;
      const other = `${to}/${name}`;
      const kind = found[1][i];
      let problem;
      if (kind === DIRECTORY) problem = checkCopyTree(one, other, follow, syscall);
      else if (kind === 3 && !follow) { // UV_DIRENT_LINK
        const leads = paths.resolve(one, true);
        problem = checkLook(one, syscall, false) ?? (leads === null ? undefined : checkSymlink(leads, other, syscall));
      } else problem = checkRead(one, syscall) ?? checkWrite(other, 'w', syscall);
      if (problem !== undefined) return problem;
    }
    return undefined;
  }

  // --- the table: binding function to its check; a check may rewrite `args` ---

  function one(check_) {
    return (args, name) => {
      const text = takePath(args, 0);
      return text === null ? badType() : check_(text, args, name);
    };
  }

  function two(check_) {
    return (args, name) => {
      const from = takePath(args, 0);
      const to = takePath(args, 1);
      return from === null || to === null ? badType() : check_(from, to, args, name);
    };
  }

  const look = (follow) => one((text, args, name) => checkLook(text, name, follow));
  const change = (op, removes = false) => one((text, args, name) => checkChange(op, text, name, removes));
  const descriptor = (op) => (args, name) => checkDescriptor(op, args[0], name);

  const CHECKS = {
    __proto__: null,
    access: look(true),
    statfs: look(true),
    realpath: look(true),
    readlink: look(false),
    open: one((text, args, name) => checkOpen(text, args[1], name)),
    openFileHandle: one((text, args) => checkOpen(text, args[1], 'open')),
    readdir: one((text, args) => checkList(text, 'scandir')),
    mkdir: one((text, args, name) => checkMkdir(text, args[2] === true, name)),
    mkdtemp: one((text, args, name) => checkChange('fs.mkdir', `${text}XXXXXX`, name, true)),
    rmdir: change('fs.rmdir', true),
    unlink: change('fs.remove', true),
    rmSync: one((text, args) => checkRemoveTree(text, 'rm')),
    rename: two((from, to, args, name) => checkPair('fs.rename', from, to, name)),
    link: two((from, to, args, name) => checkPair('fs.link', from, to, name)),
    symlink: two((target, text, args, name) => checkSymlink(target, text, name)),
    copyFile: two((from, to) => checkRead(from, 'copyfile') ?? checkWrite(to, 'w', 'copyfile')),
    cpSyncOverrideFile: two((from, to) => checkRead(from, 'cp') ?? checkWrite(to, 'w', 'cp')),
    cpSyncCopyDir: two((from, to, args) => checkCopyTree(from, to, args[3] === true, 'cp')),
    cpSyncCheckPaths: two((from, to) => checkLook(from, 'cp', true) ?? checkParents(to)),
    chmod: change('fs.chmod'),
    chown: change('fs.chown'),
    lchown: change('fs.chown', true),
    utimes: change('fs.utime'),
    lutimes: change('fs.utime', true),
    fchmod: descriptor('fs.chmod'),
    fchown: descriptor('fs.chown'),
    futimes: descriptor('fs.utime'),
    ftruncate: descriptor('fs.truncate'),
  };

  /** cpSync makes the missing folders above its target. */
  function checkParents(to) {
    const path = paths.resolve(to, true);
    const above = path === null ? '' : form.parent(path);
    return above !== '' && isAbsent(above) ? checkMkdir(above, true, 'cp') : undefined;
  }

  const names = p.keys(CHECKS);
  for (let i = 0; i < names.length; i += 1) {
    const name = names[i];
    const original = binding[name];
    if (typeof original !== 'function') continue;
    const examine = CHECKS[name];
    put(binding, name, disguise(function guarded(...args) {
      const error = requestOf(args) === undefined ? examine(args, name) : channel.beside(() => examine(args, name));
      return error === undefined ? p.apply(original, binding, args) : deliver(error, args);
    }, original));
  }

  // Paths or descriptors: a number in front is a file that was opened before.
  wrap(binding, 'readFileUtf8', (original) => (...args) => {
    if (typeof args[0] !== 'number') {
      const text = takePath(args, 0);
      const error = text === null ? badType() : checkOpen(text, args[1], 'open');
      if (error !== undefined) throw error;
    }
    return p.apply(original, binding, args);
  });
  wrap(binding, 'writeFileUtf8', (original) => (...args) => {
    if (typeof args[0] !== 'number') {
      const text = takePath(args, 0);
      const error = text === null ? badType() : checkOpen(text, args[2], 'open');
      if (error !== undefined) throw error;
    }
    return p.apply(original, binding, args);
  });

  // What answers "nothing there" by a value: stat(path, bigint, request, throwIfNoEntry) and existsSync.
  function stat(name, follow) {
    wrap(binding, name, (original) => (...args) => {
      const text = takePath(args, 0);
      const error = text === null ? badType() : checkLook(text, name, follow);
      if (error === undefined) return p.apply(original, binding, args);
      if (error.code === 'ENOENT' && args[3] === false && args[2] === undefined) return undefined;
      return deliver(error, args);
    });
  }
  stat('stat', true);
  stat('lstat', false);
  wrap(binding, 'existsSync', (original) => (...args) => {
    const text = takePath(args, 0);
    return text !== null && checkLook(text, 'access', true) === undefined && p.apply(original, binding, args);
  });

  // Watching: the names and times of what changes.
  wrap(binding.StatWatcher.prototype, 'start', (original) => function start(...args) {
    const text = takePath(args, 0);
    const error = text === null ? badType() : checkLook(text, 'watch', true);
    if (error !== undefined) throw error;
    return p.apply(original, this, args);
  }, true);
  // A FileHandle for any number could close what is not the agent's.
  put(binding.FileHandle.prototype, 'constructor', p.Error, true);

  kit.files = p.freeze({ __proto__: null, checkList, checkLook, checkOpen, checkRead, checkWatch, checkWrite });
};
