'use strict';
// The few functions of node:fs that do not end in the fs binding: directories as streams, files as blobs, watchers.
// Each is judged by the same checks as the rest; nothing here knows a rule.

const OPENDIR = ['encoding', 'bufferSize', 'recursive'];
const RECURSIVE = 'the folders below are opened where no guard sees it; fs.readdir with recursive lists them';

module.exports = function install(kit, fs) {
  const { p, files } = kit;
  const { publicPath, put, wrap, takePath } = kit.base;
  const { O_RDONLY, O_NONBLOCK, O_NOCTTY } = kit.constants;

  function judged(name, check, fail) {
    return (original) => function guarded(...args) {
      let path;
      try {
        path = publicPath(args[0]);
      } catch (error) {
        return fail === byCallback ? byThrow(error) : fail(error, args);
      }
      if (path === null) return p.apply(original, this, args); // its own ERR_INVALID_ARG_TYPE
      args[0] = path;
      const error = check(kit.paths.plain(path).text, name, args);
      return error === undefined ? p.apply(original, this, args) : fail(error, args);
    };
  }

  function byCallback(error, args) {
    const callback = args[args.length - 1];
    if (typeof callback !== 'function') throw error;
    kit.nextTick(callback, error);
  }

  function byThrow(error) {
    throw error;
  }

  /** A blob opens its file when it is read, which may be often or never: kernel layers see the one read that this is by an open of our own. */
  function checkBlob(text, syscall) {
    const error = files.checkRead(text, syscall);
    if (error !== undefined || !kit.contained) return error;
    try {
      kit.raw.close(kit.raw.open(kit.paths.native(text), O_RDONLY | O_NONBLOCK | O_NOCTTY, 0));
    } catch {} // it fails for its caller as well
    return undefined;
  }

  /** The folders below are opened by native code, by names that pass through node:path and fs.Dirent, which anyone may change. */
  function checkOpendir(text, name, args) {
    if (args[1] !== null && typeof args[1] === 'object') {
      const options = { __proto__: null };
      for (let i = 0; i < OPENDIR.length; i += 1) {
        const value = args[1][OPENDIR[i]];
        if (value !== undefined) options[OPENDIR[i]] = value;
      }
      args[1] = options;
      if (options.recursive && !kit.contained) {
        const error = kit.report.forbid('fs.opendir with recursive', RECURSIVE);
        if (error !== undefined) return error;
      }
    }
    return files.checkList(text, name);
  }

  wrap(fs, 'opendirSync', judged('opendir', checkOpendir, byThrow));
  wrap(fs, 'opendir', judged('opendir', checkOpendir, byCallback));
  const { promises } = fs;
  wrap(promises, 'opendir', judged('opendir', checkOpendir, (error) => p.reject(error)));
  wrap(fs, 'openAsBlob', judged('open', checkBlob, (error) => p.reject(error)));
  wrap(fs, 'openAsBlobSync', judged('open', checkBlob, byThrow));

  kit.onLoad('Internal Binding fs_event_wrap', () => {
    const { FSEvent } = kit.binding('fs_event_wrap');
    wrap(FSEvent.prototype, 'start', (original) => function start(...args) {
      const text = takePath(args, 0);
      const error = text === null ? undefined : files.checkWatch(text);
      if (error !== undefined) throw error;
      return p.apply(original, this, args);
    }, true);
    put(FSEvent.prototype, 'constructor', p.Error, true);
  });
};
