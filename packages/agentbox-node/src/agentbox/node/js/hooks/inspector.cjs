'use strict';
// The debugger: a session inside the process reads the variables of any function, the guard's own among them.
// Refused in the binding, before node:inspector takes it apart.

const REASON = 'a debugger reaches around the guard';

module.exports = function install(kit, binding) {
  const names = ['Connection', 'MainThreadConnection', 'open', 'waitForDebugger', 'callAndPauseOnStart'];
  for (let i = 0; i < names.length; i += 1) kit.base.refuse(binding, names[i], 'node:inspector', REASON);
};
