'use strict';
// Built-in modules that load native code or write files by themselves: OpenSSL engines, foreign functions, virtual files, trace logs.
// No rule can allow what they do, so each is refused by name when it is loaded.

const ENGINE = 'an OpenSSL engine is native code, which no guard can follow';

module.exports = function install(kit, exported, name) {
  const { p } = kit;
  const { refuse, put, wrap } = kit.base;

  if (name === 'NativeModule crypto') {
    kit.takeHasher(exported);
    refuse(exported, 'setEngine', 'crypto.setEngine', ENGINE);
  } else if (name === 'NativeModule _tls_common' || name === 'NativeModule tls') {
    // Both make contexts of the one native class; whichever is loaded first locks it.
    const prototype = p.prototypeOf(new exported.SecureContext(undefined, 0, 'TLSv1.2', 'TLSv1.3').context);
    refuse(prototype, 'setClientCertEngine', 'clientCertEngine', ENGINE, true);
    refuse(prototype, 'setEngineKey', 'privateKeyEngine', ENGINE, true);
  } else if (name === 'NativeModule trace_events') {
    refuse(exported, 'createTracing', 'trace_events', 'its log is written where no guard sees it');
  } else if (name === 'NativeModule os') {
    wrap(exported, 'setPriority', (original) => function setPriority(...args) {
      const pid = args.length > 1 ? p.Number(args[0]) | 0 : 0;
      if (pid !== 0 && pid !== kit.process.pid) {
        const error = kit.report.forbid(`os.setPriority of process ${pid}`, 'it belongs to another process');
        if (error !== undefined) throw error;
        args[0] = pid;
      }
      return p.apply(original, this, args);
    });
  } else {
    const title = `node:${p.slice(name, 13)}`;
    const names = p.keys(exported);
    for (let i = 0; i < names.length; i += 1) {
      if (typeof exported[names[i]] === 'function') refuse(exported, names[i], title, 'it goes around the guard of files and native code');
      else if (names[i] !== 'default') put(exported, names[i], undefined);
    }
  }
};
