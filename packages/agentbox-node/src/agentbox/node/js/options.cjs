'use strict';
// Which of Node's own options leave the guard in place: those that a worker or a child's NODE_OPTIONS may carry.
// An option that is not listed is refused or dropped, never guessed at; agentbox.node.flags says the same of command lines.

const HARMLESS = [
  '--abort-on-uncaught-exception', '--conditions', '-C', '--deprecation', '--disable-warning', '--dns-result-order', '--enable-source-maps',
  '--expose-gc', '--expose_gc', '--experimental-default-type', '--experimental-import-meta-resolve', '--experimental-json-modules',
  '--experimental-require-module', '--experimental-strip-types', '--experimental-transform-types', '--experimental-vm-modules',
  '--experimental-wasm-modules', '--experimental-detect-module', '--force-fips', '--import', '--input-type', '--insecure-http-parser',
  '--max-http-header-size', '--max-old-space-size', '--max-semi-space-size', '--max_old_space_size', '--no-deprecation',
  '--no-experimental-require-module', '--no-experimental-strip-types', '--no-network-family-autoselection', '--no-warnings',
  '--pending-deprecation', '--preserve-symlinks', '--preserve-symlinks-main', '--require', '-r', '--stack-trace-limit', '--throw-deprecation',
  '--tls-max-v1.2', '--tls-max-v1.3', '--tls-min-v1.2', '--tls-min-v1.3', '--trace-deprecation', '--trace-exit', '--trace-sigint',
  '--trace-uncaught', '--trace-warnings', '--unhandled-rejections', '--use-bundled-ca', '--use-system-ca', '--warnings',
];

module.exports = function makeOptions(p) {
  const harmless = new p.Set(HARMLESS);
  return function isHarmlessOption(word) {
    const at = p.indexOf(word, '=');
    return p.setHas(harmless, at < 0 ? word : p.slice(word, 0, at));
  };
};
