'use strict';
// Explains refused listens: net.Server makes its own error from a bare number, before its handle has an owner.
// Decides nothing; without it a refusal is the same, only told by its number.

module.exports = function install(kit, net) {
  const { p } = kit;
  kit.base.wrap(net.Server.prototype, '_listen2', (original) => function _listen2(...args) {
    kit.lastRefusal = undefined;
    try {
      return p.apply(original, this, args);
    } finally {
      if (kit.lastRefusal !== undefined) kit.base.explainNext(this, kit.lastRefusal);
      kit.lastRefusal = undefined;
    }
  });
};
