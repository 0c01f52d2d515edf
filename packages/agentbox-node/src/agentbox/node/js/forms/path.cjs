'use strict';
// The path form: matches resolved paths against the rules of a normal form, and words the line that would allow one.
// Never touches the file system; docs/spec/policy.md section 5, held to the same vectors as agentbox.policy.forms.path.

module.exports = function pathForm(p) {
  const { push, join, slice, startsWith, endsWith, includes, indexOf, lastIndexOf, codePointAt, exec } = p;

  /** The code points of a text, as numbers: what a wildcard counts. */
  function points(text) {
    const made = [];
    for (let at = 0; at < text.length;) {
      const point = codePointAt(text, at);
      push(made, point);
      at += point > 0xffff ? 2 : 1;
    }
    return made;
  }

  /** A text cut at `mark`. */
  function split(text, mark) {
    const made = [];
    let from = 0;
    for (let at = indexOf(text, mark); at >= 0; at = indexOf(text, mark, from)) {
      push(made, slice(text, from, at));
      from = at + mark.length;
    }
    push(made, slice(text, from));
    return made;
  }

  // A compiled segment is '**', {text} (no wildcard in it) or {tokens}. A token is a code point, STAR, ANY or
  // {negated, ranges} where ranges is a flat list of low, high, low, high ...
  const STAR = -1;
  const ANY = -2;
  const DOT = 46;

  /** The set that opens at `chars[at]`: [token, index after it]; a plain `[` when it is not closed. */
  function globSet(chars, at) {
    let from = at + 1;
    const negated = chars[from] === 33 || chars[from] === 94;
    if (negated) from += 1;
    let end = from + 1;
    while (end < chars.length && chars[end] !== 93) end += 1;
    if (end >= chars.length) return [91, at + 1];
    const ranges = [];
    for (let i = from; i < end;) {
      const isRange = i + 2 < end && chars[i + 1] === 45;
      push(ranges, chars[i]);
      push(ranges, chars[isRange ? i + 2 : i]);
      i += isRange ? 3 : 1;
    }
    // `[*]` is how a literal star is written.
    if (!negated && ranges.length === 2 && ranges[0] === ranges[1]) return [ranges[0], end + 1];
    return [{ __proto__: null, negated, ranges }, end + 1];
  }

  function globSegment(text) {
    if (text === '**') return text;
    const chars = points(text);
    const tokens = [];
    let wild = false;
    let literal = '';
    for (let at = 0; at < chars.length;) {
      let token = chars[at];
      at += 1;
      if (token === 42) token = STAR;
      else if (token === 63) token = ANY;
      else if (token === 91) {
        const found = globSet(chars, at - 1);
        token = found[0];
        at = found[1];
      }
      if (token === STAR && tokens.length > 0 && tokens[tokens.length - 1] === STAR) continue;
      if (typeof token === 'number' && token >= 0) literal += p.fromCodePoint(token);
      else wild = true;
      push(tokens, token);
    }
    return wild ? { __proto__: null, tokens, text: null } : { __proto__: null, tokens: null, text: literal };
  }

  function globPatterns(text) {
    const names = split(text, '/');
    const made = [];
    for (let i = 0; i < names.length; i += 1) push(made, globSegment(names[i]));
    return made;
  }

  /** Whether one token other than STAR matches one code point. */
  function tokenMatches(token, point) {
    if (token === ANY) return true;
    if (typeof token === 'number') return token === point;
    for (let i = 0; i < token.ranges.length; i += 2) {
      if (token.ranges[i] <= point && point <= token.ranges[i + 1]) return !token.negated;
    }
    return token.negated;
  }

  /** Whether one compiled segment (not `**`) matches one name; a wildcard never matches a dot in front. */
  function segmentMatches(pattern, name) {
    if (pattern.text !== null) return pattern.text === name;
    const { tokens } = pattern;
    const chars = points(name);
    if (chars[0] === DOT && tokens[0] !== DOT) return false;
    let token = 0;
    let at = 0;
    let star = -1;
    let mark = 0;
    while (at < chars.length) {
      if (token < tokens.length && tokens[token] === STAR) {
        star = token;
        mark = at;
        token += 1;
      } else if (token < tokens.length && tokenMatches(tokens[token], chars[at])) {
        token += 1;
        at += 1;
      } else if (star >= 0) {
        mark += 1;
        at = mark;
        token = star + 1;
      } else {
        return false;
      }
    }
    while (token < tokens.length && tokens[token] === STAR) token += 1;
    return token === tokens.length;
  }

  /** Whether a compiled glob matches all of `rest`, the path below the rule's root ('' is the root itself). */
  function globMatches(patterns, rest) {
    const names = rest === '' ? [] : split(rest, '/');
    let at = 0;
    let name = 0;
    let star = -1;
    let mark = 0;
    while (name < names.length) {
      if (at < patterns.length && patterns[at] === '**') {
        star = at;
        mark = name;
        at += 1;
      } else if (at < patterns.length && segmentMatches(patterns[at], names[name])) {
        at += 1;
        name += 1;
      } else if (star >= 0 && names[mark][0] !== '.') {
        mark += 1;
        name = mark;
        at = star + 1;
      } else {
        return false;
      }
    }
    while (at < patterns.length && patterns[at] === '**') at += 1;
    return at === patterns.length;
  }

  /** The `rules` of a normal form as `decide` takes them; `index` is the place in `rules`. */
  function compile(rules) {
    const made = [];
    for (let index = 0; index < rules.length; index += 1) {
      const { key, root, glob } = rules[index];
      if (key !== 'read' && key !== 'list' && key !== 'write') continue;
      push(made, {
        __proto__: null,
        index,
        key,
        root,
        prefix: endsWith(root, '/') ? root : `${root}/`,
        patterns: glob === null ? null : globPatterns(glob),
      });
    }
    return made;
  }

  /** Whether this is the one spelling that a resolved path has. */
  function isPlain(path) {
    if (typeof path !== 'string' || path[0] !== '/' || includes(path, '\0') || includes(path, '//')) return false;
    if (path[path.length - 1] === '/') return path === '/';
    if (!includes(path, '/.')) return true;
    return !(includes(path, '/./') || includes(path, '/../') || endsWith(path, '/.') || endsWith(path, '/..'));
  }

  /** The index of the first rule that allows `access` (read, list or write) to the resolved `path`, or -1. */
  function decide(access, path, rules) {
    if (!isPlain(path) || (access !== 'read' && access !== 'list' && access !== 'write')) return -1;
    for (let i = 0; i < rules.length; i += 1) {
      const { index, key, root, prefix, patterns } = rules[i];
      if ((access === 'write' && key !== 'write') || (access === 'read' && key === 'list')) continue;
      if (patterns === null) {
        if (path === root || (key !== 'list' && startsWith(path, prefix))) return index;
      } else if (startsWith(path, prefix) && path !== prefix) {
        if (globMatches(patterns, slice(path, prefix.length))) return index;
      } else if (path === root && globMatches(patterns, '')) {
        return index;
      }
    }
    return -1;
  }

  function isPrintable(char) {
    return char === ' ' || exec(/[\p{C}\p{Z}]/u, char) === null;
  }

  function hex(number, width) {
    let text = p.numberToString(number, 16);
    while (text.length < width) text = `0${text}`;
    return text;
  }

  /** A path as it must be written in a policy (docs/spec/policy.md, section 3), a zero as a `*`; '' when it cannot be. */
  function quoted(text) {
    const chars = points(text);
    let bare = text !== '' && !includes(' \t~#', text[0]) && !includes(' \t', text[text.length - 1]);
    let made = '"';
    let before = '';
    for (let i = 0; i < chars.length; i += 1) {
      const code = chars[i];
      const char = p.fromCodePoint(code);
      if (includes('"\'\\,;#{}$*?[', char) || (code !== 0 && !isPrintable(char)) || (before === ' ' && includes('./~', char))) bare = false;
      before = char;
      if (includes('"\\*?[', char)) made += `\\${char}`;
      else if (char === '\n') made += '\\n';
      else if (char === '\t') made += '\\t';
      else if (code >= 0xdc80 && code <= 0xdcff) made += `\\x${hex(code - 0xdc00, 2)}`;
      else if (code === 0) made += '*';
      else if (code >= 0xd800 && code <= 0xdfff) return '';
      else if (isPrintable(char)) made += char;
      else {
        const bytes = p.encode(char);
        for (let b = 0; b < bytes.length; b += 1) made += `\\x${hex(bytes[b], 2)}`;
      }
    }
    if (includes(text, ' ') && includes(text, ':')) bare = false; // it could read as the key of a second rule
    return bare ? join(split(text, '\0'), '*') : `${made}"`;
  }

  /** Whether ASCII letters and digits look like no word; `marked`: the name says that it is a temporary one, so that less is enough. */
  function looksRandom(word, marked) {
    let digits = 0;
    let changes = 0;
    let before = '';
    for (let at = 0; at < word.length; at += 1) {
      const code = p.charCodeAt(word, at);
      const kind = code <= 57 ? 'digit' : code <= 90 ? 'upper' : 'lower';
      if (kind === 'digit') digits += 1;
      if (before !== '' && kind !== before && !(before === 'upper' && kind === 'lower')) changes += 1;
      before = kind;
    }
    if (digits === word.length) return marked || digits >= 5;
    if (word.length < 6) return false;
    if (exec(/^X+$/, word) !== null) return true; // the template of mkdtemp(3), which Node's own call is given
    const isHex = exec(/^(?:[0-9a-f]+|[0-9A-F]+)$/, word) !== null;
    if (isHex && digits > 0 && (marked || digits >= 2 || word.length >= 12)) return true;
    return changes >= (marked ? 2 : 3);
  }

  const TEMPORARY = /(?:^|[._-])(?:tmp|temp|lock|swp|partial|pid)(?:$|[._-])/i;
  const TEMPFILE = /^tmp[a-z0-9_]{8}/;
  const DAY = /^[0-9]{4}([-_.])[0-9]{2}\1[0-9]{2}$/;
  const isWordCode = (code) => (code >= 48 && code <= 57) || (code >= 65 && code <= 90) || (code >= 97 && code <= 122);

  /** [start, end] of what another run would choose anew in a file's name, or null. */
  function randomPart(name) {
    if (exec(TEMPFILE, name) !== null) return [3, 11];
    const marked = exec(TEMPORARY, name) !== null;
    let start = -1;
    let end = -1;
    for (let at = 0; at < name.length;) {
      let after = at;
      while (after < name.length && isWordCode(p.charCodeAt(name, after))) after += 1;
      const word = slice(name, at, after);
      if (word !== '') {
        const follows = start >= 0 && at === end + 1 && p.charCodeAt(word, 0) <= 57;
        const dated = word.length === 4 && exec(DAY, slice(name, at, at + 10)) !== null;
        if (follows || dated || looksRandom(word, marked)) {
          if (start < 0) start = at;
          end = after;
        }
      }
      at = after + 1;
    }
    return start >= 0 ? [start, end] : null;
  }

  /** How many characters of a name tell what it is: without signs at its edges. */
  function telling(text) {
    return exec(/^[._~#-]*(.*?)[._~#-]*$/s, text)[1].length;
  }

  /** A path to write with a zero for what another run would choose anew in a name, as `any_name` of agentbox.policy.forms.path. */
  function anyName(path) {
    if (exec(/^\/(?:proc|sys|dev)\//, path) !== null && !startsWith(path, '/dev/shm/')) return path;
    const names = split(path, '/');
    let made = names[0];
    for (let i = 1; i < names.length; i += 1) {
      const name = names[i];
      if (exec(/^\.(?:git|hg|svn|ssh|gnupg)$/, name) !== null) return path;
      const part = randomPart(name);
      if (part === null || (telling(slice(name, 0, part[0])) < 3 && (path[0] === '/' || i === 1))) {
        made += `/${name}`;
        continue;
      }
      made += `/${slice(name, 0, part[0])}\0${slice(name, part[1])}`;
      let dotted = names.length - 1; // the last name that no wildcard matches
      while (dotted > i && names[dotted][0] !== '.') dotted -= 1;
      for (let at = i + 1; at <= dotted; at += 1) made += `/${names[at]}`;
      return dotted < names.length - 1 ? `${made}/\0\0` : made;
    }
    return path;
  }

  /** Whether a system can hold a path: 4095 bytes, 255 in a name (limits.h). */
  function fits(path) {
    if (p.encode(path).length > 4095) return false;
    const names = split(path, '/');
    for (let i = 0; i < names.length; i += 1) if (p.encode(names[i]).length > 255) return false;
    return true;
  }

  /** `text` with a star for each number in it if it is an entry of a process, which has another number in the next run. */
  function ofAnyProcess(text) {
    const names = split(text, '/');
    const isNumber = (name) => {
      let digits = 0;
      while (digits < name.length && p.charCodeAt(name, digits) >= 48 && p.charCodeAt(name, digits) <= 57) digits += 1;
      return digits > 0 && digits === name.length;
    };
    if (!startsWith(text, '/proc/') || names.length < 4 || !isNumber(names[2])) return text;
    let made = '';
    for (let i = 1; i < names.length; i += 1) made += isNumber(names[i]) ? '/*' : `/${names[i]}`;
    return made;
  }

  const RUN_FOLDER = /^agentbox-[0-9]+-[0-9a-f]{12}$/;

  /** Whether a path leads into a run's private folder, as a line of a policy in `cwd` would name it: the next run has another one. */
  function ofOneRun(path, cwd) {
    const names = split(startsWith(`${path}/`, `${cwd}/`) ? slice(path, cwd.length) : path, '/');
    for (let i = 0; i < names.length; i += 1) if (exec(RUN_FOLDER, names[i]) !== null) return true;
    return false;
  }

  const OWN = ['/proc/self/', '/proc/thread-self/', '/dev/fd/', '/dev/stdin/', '/dev/stdout/', '/dev/stderr/'];

  /** The policy line that would allow this access; '' when there is none. */
  function fix(access, path, cwd) {
    if ((access !== 'read' && access !== 'list' && access !== 'write') || !isPlain(path) || !fits(path) || ofOneRun(path, cwd)) return '';
    for (let i = 0; i < OWN.length; i += 1) if (startsWith(`${path}/`, OWN[i])) return '';
    let shown = path;
    if (path === cwd) shown = '.';
    else if (cwd !== '/' && startsWith(path, `${cwd}/`)) shown = `./${slice(path, cwd.length + 1)}`;
    const objects = indexOf(shown, '.git/objects/');
    if (access === 'read' && objects >= 0) { // named by what is in them, and read one after the other
      const store = quoted(`${slice(shown, 0, objects)}.git/objects`);
      return store === '' ? '' : `read: ${store}  # all objects of this repository`;
    }
    const text = access === 'write' ? anyName(shown) : shown;
    const value = access === 'write' ? quoted(text) : ofAnyProcess(quoted(text));
    if (value === '' || text === shown) return value === '' ? '' : `${access}: ${value}`;
    return `write: ${value}  # ${includes(text, '\0\0') ? 'all in any folder' : 'any name'} of this form`;
  }

  /** Why `decide` gave -1. */
  function reason(access, path, rules) {
    if (!isPlain(path)) return 'it is not a resolved absolute path';
    if (access === 'write' && decide('read', path, rules) >= 0) return 'the policy allows reading it, not writing';
    if (access === 'list') return 'no list, read or write rule covers it';
    return access === 'read' ? 'no read or write rule covers it' : 'no write rule covers it';
  }

  /** `text` fit for one line on a terminal: unprintable characters escaped, and cut to 400 characters. */
  function shown(text) {
    const chars = points(text);
    const made = [];
    for (let i = 0; i < chars.length && i < 400; i += 1) {
      const code = chars[i];
      const char = p.fromCodePoint(code);
      if (isPrintable(char)) push(made, char);
      else if (code < 0x100) push(made, `\\x${hex(code, 2)}`);
      else if (code >= 0xdc80 && code <= 0xdcff) push(made, `\\x${hex(code - 0xdc00, 2)}`);
      else push(made, `\\u${hex(code, 4)}`);
    }
    if (chars.length > 400) push(made, '…');
    return join(made, '');
  }

  /** The one line that a denial shows; `policy` is the file as the user named it. */
  function deniedText(key, target, why, line, policy) {
    const text = `agentbox: ${key} denied: ${shown(target)}: ${shown(why)}`;
    return line ? `${text}; to allow it, add this line to ${shown(policy)}: ${line}` : text;
  }

  /** The folder of a path: '' for '/'. */
  function parent(path) {
    return slice(path, 0, lastIndexOf(path, '/'));
  }

  return p.freeze({ __proto__: null, compile, decide, deniedText, fix, isPlain, parent, reason, split });
};
