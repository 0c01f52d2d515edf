'use strict';
// Names: looked up by the supervisor, which asks for allowed names only and pins their addresses. No query leaves this process.
// A resolver's other record types are refused: they go to the network by themselves, and a name in a query is a message.

const UV_EAI_NONAME = -3008;

module.exports = function install(kit, binding) {
  const { p, report, channel } = kit;
  const { put, disguise, wrap } = kit.base;
  const { member } = channel;

  function fail(request, error) {
    kit.nextTick(() => {
      const tell = typeof request.callback === 'function' ? request.callback : request.reject;
      if (typeof tell === 'function') p.apply(tell, request, [error]);
      else p.apply(request.oncomplete, request, [-13]);
    });
    return 0;
  }

  /** Have a name looked up; `done` gets (error, addresses). The event loop goes on meanwhile. */
  function lookUp(host, family, done) {
    const args = `${member('host', host)},"port":0,${member('family', family)}`;
    kit.calls.ask('net.resolve', args, (verdict) => {
      if (verdict.allow === true) done(undefined, verdict.value.addresses);
      else done(report.refused('net.resolve', verdict, { __proto__: null, syscall: 'getaddrinfo', hostname: host }), undefined);
    });
  }

  function sorted(addresses, order) {
    if (order !== false && order !== binding.DNS_ORDER_IPV4_FIRST && order !== binding.DNS_ORDER_IPV6_FIRST) return addresses;
    const first = [];
    const last = [];
    for (let i = 0; i < addresses.length; i += 1) {
      const isSix = p.includes(addresses[i], ':');
      p.push(isSix === (order === binding.DNS_ORDER_IPV6_FIRST && order !== undefined) ? first : last, addresses[i]);
    }
    for (let i = 0; i < last.length; i += 1) p.push(first, last[i]);
    return first;
  }

  const real = binding.getaddrinfo;
  put(binding, 'getaddrinfo', disguise(function getaddrinfo(request, hostname, family, hints, order) {
    const host = p.String(hostname);
    lookUp(host, family === 4 ? 'inet' : family === 6 ? 'inet6' : 'any', (error, addresses) => {
      if (error !== undefined) fail(request, error);
      else if (addresses.length === 0) p.apply(request.oncomplete, request, [UV_EAI_NONAME, null]);
      else p.apply(request.oncomplete, request, [null, sorted(addresses, order)]);
    });
    return 0;
  }, real));
  // A reverse look-up leaves the machine: an address keeps its number.
  put(binding, 'getnameinfo', disguise(function getnameinfo(request, host, port) {
    kit.nextTick(() => p.apply(request.oncomplete, request, [null, p.String(host), p.String(port)]));
    return 0;
  }, binding.getnameinfo));

  const resolver = binding.ChannelWrap.prototype;
  const names = p.ownKeys(resolver);
  for (let i = 0; i < names.length; i += 1) {
    const name = names[i];
    if (typeof name !== 'string' || !(p.startsWith(name, 'query') || name === 'getHostByAddr')) continue;
    const family = name === 'queryA' ? 'inet' : name === 'queryAaaa' ? 'inet6' : '';
    wrap(resolver, name, () => function query(request, host) {
      const text = p.String(host);
      if (family === '') {
        const kind = p.slice(name, name === 'getHostByAddr' ? 3 : 5);
        const reason = 'only addresses can be looked up: other queries reach the network without a rule that could allow them';
        const error = report.deny('net.resolve', member('host', text), 'net', `${kind} ${text}`, reason, '', { __proto__: null, hostname: text });
        return fail(request, error ?? report.failure(reason, 13, { __proto__: null, hostname: text }));
      }
      lookUp(text, family, (error, addresses) => {
        if (error !== undefined) fail(request, error);
        else if (addresses.length === 0) p.apply(request.oncomplete, request, ['ENOTFOUND']);
        else p.apply(request.oncomplete, request, [null, addresses, zeros(addresses.length)]);
      });
      return 0;
    }, true);
  }

  function zeros(count) {
    const made = [];
    for (let i = 0; i < count; i += 1) p.push(made, 0);
    return made;
  }
};
