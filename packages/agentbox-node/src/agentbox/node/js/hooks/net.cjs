'use strict';
// Sockets: connect, bind and send in the handles that net, tls, http, http2, fetch, WebSocket, cluster and dgram all end in.
// Decides nothing but which socket paths are the run's own: the supervisor holds the rules and the pinned addresses.

const UV_EACCES = -13;

module.exports = function install(kit, binding, name) {
  const { p, report, decide, paths, form, channel } = kit;
  const { put, wrap, ownerOf, explainNext } = kit.base;
  const { member } = channel;

  /** Refuse with an error number, as Node expects of a handle, and have the error that it makes explained. */
  function refused(handle, error) {
    const owner = ownerOf(handle);
    if (owner !== undefined) explainNext(owner, error);
    else kit.lastRefusal = error;
    return UV_EACCES;
  }

  function ask(op, family, address, port) {
    return report.inquire(op, `${member('family', family)},${member('address', address)},"port":${port}`, { __proto__: null, address, port }).error;
  }

  /** A checked method: `read` takes the arguments apart once, rewrites them plain, and returns the Error or undefined. */
  function method(prototype, title, examine) {
    wrap(prototype, title, (original) => function guarded(...args) {
      const error = examine(args, this);
      return error === undefined ? p.apply(original, this, args) : refused(this, error);
    }, true);
  }

  function endpoint(op, family, at) {
    return (args) => {
      args[at] = p.String(args[at]);
      args[at + 1] >>>= 0;
      return ask(op, family, args[at], args[at + 1]);
    };
  }

  function tcp(prototype) {
    method(prototype, 'connect', endpoint('net.connect', 'inet', 1));
    method(prototype, 'connect6', endpoint('net.connect', 'inet6', 1));
    method(prototype, 'bind', endpoint('net.bind', 'inet', 0));
    method(prototype, 'bind6', endpoint('net.bind', 'inet6', 0));
    // Without an address of its own a socket listens at a port of the system's choice, for everybody.
    const getsockname = prototype.getsockname;
    method(prototype, 'listen', (args, handle) => {
      const found = { __proto__: null, port: 0 };
      return p.apply(getsockname, handle, [found]) === 0 && found.port !== 0 ? undefined : ask('net.bind', 'inet', '0.0.0.0', 0);
    });
  }

  function udp(prototype) {
    const bind = (family) => (args) => {
      args[0] = p.String(args[0]);
      args[1] >>>= 0;
      // A port of the system's choice is what the kernel gives at the first send on its own.
      return args[1] === 0 ? undefined : ask('net.bind', family, args[0], args[1]);
    };
    const send = (family) => (args) => {
      if (args.length < 6) return undefined; // connected: decided then
      args[3] >>>= 0;
      args[4] = p.String(args[4]);
      return ask('net.send', family, args[4], args[3]);
    };
    method(prototype, 'bind', bind('inet'));
    method(prototype, 'bind6', bind('inet6'));
    method(prototype, 'connect', endpoint('net.connect', 'inet', 0));
    method(prototype, 'connect6', endpoint('net.connect', 'inet6', 0));
    method(prototype, 'send', send('inet'));
    method(prototype, 'send6', send('inet6'));
  }

  function unix(op, text) {
    const facts = { __proto__: null, address: text };
    if (text === '' || text[0] === '\0') {
      return report.inquire(op, member('path', `@${p.slice(text, 1)}`), facts).error;
    }
    if (text === channel.address && op === 'net.connect') return undefined;
    const path = paths.resolve(text, true);
    if (path === null) return report.deny(op, member('path', text), 'net', `unix:${text}`, 'its links lead in a circle', '', facts);
    if (decide.isPrivate(path)) return undefined;
    return report.inquire(op, member('path', path), facts).error;
  }

  function pipe(prototype) {
    const at = (op, index) => (args) => {
      args[index] = p.String(args[index]);
      return unix(op, args[index]);
    };
    method(prototype, 'connect', at('net.connect', 1));
    method(prototype, 'bind', at('net.bind', 0));
  }

  if (name === 'Internal Binding tcp_wrap') tcp(binding.TCP.prototype);
  else if (name === 'Internal Binding udp_wrap') udp(binding.UDP.prototype);
  else pipe(binding.Pipe.prototype);
};
