'use strict';
// The few functions of node:fs that do not end in the fs binding: directories as streams, files as blobs, watchers.
// Each is judged by the same checks as the rest; nothing here knows a rule.

module.exports = function install(kit, fs) {
  const { p, files } = kit;
  const { publicPath, put, wrap, takePath } = kit.base;

  function judged(name, check, fail) {
    return (original) => function guarded(...args) {
      const path = publicPath(args[0]);
      if (path === null) return p.apply(original, this, args); // its own ERR_INVALID_ARG_TYPE; it takes no other shapes
      args[0] = path;
      const error = check(kit.paths.plain(path).text, name);
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

  wrap(fs, 'opendirSync', judged('opendir', files.checkList, byThrow));
  wrap(fs, 'opendir', judged('opendir', files.checkList, byCallback));
  const { promises } = fs;
  wrap(promises, 'opendir', judged('opendir', files.checkList, (error) => p.reject(error)));
  wrap(fs, 'openAsBlob', judged('open', files.checkRead, (error) => p.reject(error)));
  wrap(fs, 'openAsBlobSync', judged('open', files.checkRead, byThrow));

  kit.onLoad('Internal Binding fs_event_wrap', () => {
    const { FSEvent } = kit.binding('fs_event_wrap');
    wrap(FSEvent.prototype, 'start', (original) => function start(...args) {
      const text = takePath(args, 0);
      const error = text === null ? undefined : files.checkList(text, 'watch');
      if (error !== undefined) throw error;
      return p.apply(original, this, args);
    }, true);
    put(FSEvent.prototype, 'constructor', p.Error, true);
  });
};
