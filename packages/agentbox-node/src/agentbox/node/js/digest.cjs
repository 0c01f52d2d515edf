'use strict';
// The sha256 of what is about to be read, at any size. Opens files with the raw binding, so nothing here is judged or recorded.
// Small files are hashed by our own code; large ones by node:crypto, taken as it was when it was loaded.

const CHUNK = 256 * 1024;
const SMALL = 64 * 1024;

module.exports = function makeDigest(kit) {
  const { p, raw, makeSha256, paths } = kit;
  const { O_RDONLY, O_NONBLOCK, O_NOCTTY } = kit.constants;
  let sha256 = null;
  let small = null;
  let large = null;

  function readAll(fd, hash) {
    const chunk = new p.Uint8Array(CHUNK);
    let size = 0;
    for (;;) {
      const count = raw.read(fd, chunk, 0, CHUNK, -1);
      if (count === 0) return size;
      hash(chunk, count);
      size += count;
    }
  }

  function streamed(fd) {
    large ??= kit.hasher();
    const state = large.start();
    const size = readAll(fd, (chunk, count) => large.add(state, p.subarray(chunk, 0, count)));
    return { __proto__: null, sha256: large.end(state), size };
  }

  /** A file that fits: read to its end, whatever its size claims to be (files of /proc say 0). */
  function inOne(fd) {
    small ??= new p.Uint8Array(SMALL + 1);
    let size = 0;
    while (size <= SMALL) {
      const count = raw.read(fd, small, size, small.length - size, -1);
      if (count === 0) {
        sha256 ??= makeSha256(p);
        return { __proto__: null, sha256: sha256(small, size), size };
      }
      size += count;
    }
    large ??= kit.hasher();
    const state = large.start();
    large.add(state, small);
    size += readAll(fd, (chunk, count) => large.add(state, p.subarray(chunk, 0, count)));
    return { __proto__: null, sha256: large.end(state), size };
  }

  /** {sha256, size} of the resolved `path`; size -1: not there or not to be opened, -2: a directory; no hash for what has no fixed content. */
  return function digest(path) {
    let fd = -1;
    try {
      fd = raw.open(paths.native(path), O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
      const found = raw.fstat(fd, false, undefined, true);
      const kind = found[1] & 0o170000;
      if (kind !== 0o100000) return { __proto__: null, sha256: null, size: kind === 0o040000 ? -2 : 0 };
      return found[8] <= SMALL ? inOne(fd) : streamed(fd);
    } catch {
      return { __proto__: null, sha256: null, size: -1 };
    } finally {
      if (fd >= 0) raw.close(fd);
    }
  };
};
