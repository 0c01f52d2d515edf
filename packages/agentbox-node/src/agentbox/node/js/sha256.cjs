'use strict';
// SHA-256 (FIPS 180-4) for the small files that most reads are of: node:crypto takes longer to load than such a hash takes.
// Works on typed arrays and numbers only, which no code of the agent can get in between of.

module.exports = function makeSha256(p) {
  const K = new p.Int32Array(64);
  const START = new p.Int32Array(8);
  let found = 0;
  for (let n = 2; found < 64; n += 1) {
    let prime = true;
    for (let d = 2; d * d <= n; d += 1) if (n % d === 0) prime = false;
    if (!prime) continue;
    const fraction = (x) => ((x - Math.floor(x)) * 0x100000000) | 0;
    if (found < 8) START[found] = fraction(Math.sqrt(n));
    K[found] = fraction(Math.cbrt(n));
    found += 1;
  }
  const W = new p.Int32Array(64);
  const H = new p.Int32Array(8);
  const tail = new p.Uint8Array(128);

  function block(data, at) {
    for (let i = 0; i < 16; i += 1, at += 4) {
      W[i] = (data[at] << 24) | (data[at + 1] << 16) | (data[at + 2] << 8) | data[at + 3];
    }
    for (let i = 16; i < 64; i += 1) {
      const x = W[i - 15];
      const y = W[i - 2];
      const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
      const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
      W[i] = (W[i - 16] + s0 + W[i - 7] + s1) | 0;
    }
    let a = H[0], b = H[1], c = H[2], d = H[3], e = H[4], f = H[5], g = H[6], h = H[7];
    for (let i = 0; i < 64; i += 1) {
      const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
      const t1 = (h + s1 + ((e & f) ^ (~e & g)) + K[i] + W[i]) | 0;
      const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
      const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      h = g; g = f; f = e; e = (d + t1) | 0; d = c; c = b; b = a; a = (t1 + t2) | 0;
    }
    H[0] += a; H[1] += b; H[2] += c; H[3] += d; H[4] += e; H[5] += f; H[6] += g; H[7] += h;
  }

  /** The hash of the first `length` bytes (less than 2^29) of `data`, a byte array, in lower-case hex. */
  return function sha256(data, length) {
    for (let i = 0; i < 8; i += 1) H[i] = START[i];
    let at = 0;
    for (; at + 64 <= length; at += 64) block(data, at);
    const rest = length - at;
    const size = rest < 56 ? 64 : 128;
    for (let i = 0; i < size; i += 1) tail[i] = i < rest ? data[at + i] : 0;
    tail[rest] = 0x80;
    const bits = length * 8;
    tail[size - 1] = bits; tail[size - 2] = bits >>> 8; tail[size - 3] = bits >>> 16; tail[size - 4] = bits >>> 24;
    block(tail, 0);
    if (size === 128) block(tail, 64);
    let text = '';
    for (let i = 0; i < 8; i += 1) {
      const word = p.numberToString(H[i] >>> 0, 16);
      text += word.length === 8 ? word : `${p.slice('0000000', word.length - 1)}${word}`;
    }
    return text;
  };
};
