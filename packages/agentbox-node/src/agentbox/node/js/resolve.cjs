'use strict';
// What a path means now: the object it names, as the kernel would find it. Never trusts node:path or the public node:fs, which the agent can edit.
// Paths are texts with lone surrogates for bytes that are not UTF-8 (PEP 383), as everywhere in agentbox.

const MAX_LINKS = 40; // as the kernel's own limit in one look-up (path_resolution(7))

module.exports = function makeResolve(kit) {
  const { p, raw, form } = kit;

  /** Bytes as text: UTF-8, and a lone surrogate U+DC80 + n for each byte that is none. */
  function textOf(found) {
    try {
      return p.decodeStrict(found);
    } catch {
      let made = '';
      for (let at = 0; at < found.length;) {
        let size = found[at] < 0x80 ? 1 : found[at] < 0xe0 ? 2 : found[at] < 0xf0 ? 3 : 4;
        for (; size > 0; size -= 1) {
          try {
            if (at + size <= found.length) {
              const part = p.decodeStrict(p.subarray(found, at, at + size));
              made += part;
              break;
            }
          } catch {
            continue;
          }
        }
        if (size === 0) made += p.fromCharCode(0xdc00 + found[at]);
        at += size || 1;
      }
      return made;
    }
  }

  /** Text as what the system calls take: itself, or bytes where it has lone surrogates. */
  function native(text) {
    for (let i = 0; i < text.length; i += 1) {
      const code = p.charCodeAt(text, i);
      if (code >= 0xd800 && code <= 0xdfff) return bytesOf(text);
    }
    return text;
  }

  function bytesOf(text) {
    const made = new p.Uint8Array(text.length * 3);
    let at = 0;
    for (let i = 0; i < text.length; i += 1) {
      const point = p.codePointAt(text, i);
      if (point >= 0xdc80 && point <= 0xdcff) {
        made[at] = point - 0xdc00;
        at += 1;
        continue;
      }
      if (point > 0xffff) i += 1;
      const bytes = p.encode(p.fromCodePoint(point));
      p.viewSet(made, bytes, at);
      at += bytes.length;
    }
    return p.subarray(made, 0, at);
  }

  /** A copy of the bytes of a Uint8Array or Buffer; null for anything else. */
  function bytes(value) {
    let tag;
    try {
      tag = p.viewTag(value);
    } catch {
      return null;
    }
    if (tag !== 'Uint8Array') return null;
    const made = new p.Uint8Array(p.viewLength(value));
    p.viewSet(made, value);
    return made;
  }

  /** A path argument made plain: {text, value}, `value` to be passed on; null for a type that node:fs does not take. */
  function plain(argument) {
    if (typeof argument === 'string') return { __proto__: null, text: argument, value: argument };
    if (argument === null || typeof argument !== 'object') return null;
    const copy = bytes(argument);
    if (copy === null) return null;
    const text = textOf(copy);
    return { __proto__: null, text, value: native(text) };
  }

  function link(path) {
    try {
      const found = raw.readlink(native(path), 'buffer');
      return textOf(found);
    } catch {
      return null;
    }
  }

  function whole(path) {
    try {
      const found = raw.realpath(native(path), 'utf8');
      return p.includes(found, '\ufffd') ? textOf(raw.realpath(native(path), 'buffer')) : found;
    } catch {
      return null;
    }
  }

  /** Component by component, for what realpath(3) does not answer: names that are not there, pipes, loops (null). */
  function stepwise(path, follow) {
    const todo = [];
    const names = form.split(path, '/');
    for (let i = names.length - 1; i >= 0; i -= 1) p.push(todo, names[i]);
    let done = '';
    let links = 0;
    let left = todo.length;
    while (left > 0) {
      left -= 1;
      const part = todo[left];
      todo.length = left;
      if (part === '' || part === '.') continue;
      if (part === '..') {
        done = form.parent(done);
        continue;
      }
      const here = `${done}/${part}`;
      if (left === 0 && !follow) {
        done = here;
        break;
      }
      const target = link(here);
      if (target === null) { // not a link, or not there: the name itself is what counts
        done = here;
        continue;
      }
      links += 1;
      if (links > MAX_LINKS) return null;
      if (target[0] === '/') done = '';
      else if (p.startsWith(done, '/proc/') && p.endsWith(done, '/fd')) { // pipe:[7]: no place in the tree
        done = here;
        continue;
      }
      const more = form.split(target, '/');
      for (let i = more.length - 1; i >= 0; i -= 1) p.push(todo, more[i]);
      left = todo.length;
    }
    return done === '' ? '/' : done;
  }

  /** The absolute path that `text` names; the last part is followed when `follow`. null when it cannot be told. */
  function resolve(text, follow) {
    if (p.includes(text, '\0')) return null;
    let path = text[0] === '/' ? text : `${kit.cwd()}/${text}`;
    let end = path.length;
    while (end > 1 && path[end - 1] === '/') end -= 1; // a slash at the end follows the link, as the kernel does
    const closed = end < path.length || p.endsWith(path, '/.') || p.endsWith(path, '/..');
    path = p.slice(path, 0, end);
    if (follow || closed) return whole(path) ?? stepwise(path, true);
    const folder = whole(form.parent(path) || '/');
    const name = p.slice(path, p.lastIndexOf(path, '/') + 1);
    if (folder === null || name === '') return stepwise(path, false);
    return folder === '/' ? `/${name}` : `${folder}/${name}`;
  }

  /** The path that an open descriptor stands for, or null when there is none. */
  function ofDescriptor(fd) {
    return link(`/proc/self/fd/${fd}`);
  }

  return p.freeze({ __proto__: null, bytes, native, ofDescriptor, plain, resolve, textOf });
};
