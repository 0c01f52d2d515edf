'use strict';
// node:sqlite: databases are files that native code opens, and SQL can name more of them.
// The file is judged when it is opened; statements that open others, and native extensions, are refused.

const OPENS_FILES = ['ATTACH', 'VACUUM'];

module.exports = function install(kit, exported) {
  const { p, paths, files, report } = kit;
  const { put, wrap, publicPath } = kit.base;
  const { DatabaseSync } = exported;

  /** The words of SQL outside of strings, quoted names and comments (sqlite.org/lang.html), in capitals. */
  function firstWords(sql) {
    const found = [];
    for (let at = 0; at < sql.length;) {
      const char = sql[at];
      if (char === '-' && sql[at + 1] === '-') {
        const end = p.indexOf(sql, '\n', at);
        at = end < 0 ? sql.length : end + 1;
      } else if (char === '/' && sql[at + 1] === '*') {
        const end = p.indexOf(sql, '*/', at + 2);
        at = end < 0 ? sql.length : end + 2;
      } else if (char === "'" || char === '"' || char === '`' || char === '[') {
        const end = p.indexOf(sql, char === '[' ? ']' : char, at + 1);
        at = end < 0 ? sql.length : end + 1;
      } else if (p.exec(/[$@#:]/, char) !== null) { // a variable, of which everything to the bracket's end is the name: $a(')
        at += p.exec(/^.(?:(?:::)*[\w$\u0080-\uffff](?:[\w$\u0080-\uffff]|::)*(?:\([^) \t-\r\0]*\)?)?)?/s, p.slice(sql, at))[0].length;
      } else if (p.exec(/[A-Za-z_]/, char) !== null) {
        const word = p.exec(/^[A-Za-z_0-9$\u0080-\uffff]+/, p.slice(sql, at))[0];
        p.push(found, p.toLowerCase(word));
        at += word.length;
      } else {
        at += 1;
      }
    }
    return found;
  }

  function checkSql(sql) {
    const text = p.String(sql);
    const found = firstWords(text);
    for (let i = 0; i < found.length; i += 1) {
      for (let k = 0; k < OPENS_FILES.length; k += 1) {
        if (found[i] !== p.toLowerCase(OPENS_FILES[k])) continue;
        if (OPENS_FILES[k] === 'VACUUM' && found[i + 1] !== 'into' && found[i + 2] !== 'into') continue;
        const error = report.forbid(`SQL ${OPENS_FILES[k]}`, 'it opens files by itself');
        if (error !== undefined) throw error;
      }
    }
    return text;
  }

  /** Judge a database's file: a name, and what it means should SQLite take it for a URI (sqlite.org/uri.html). */
  function checkFile(name, readOnly) {
    const text = paths.plain(name).text;
    if (text === '' || text === ':memory:') return;
    const check = (path) => {
      const error = readOnly ? files.checkRead(path, 'open') : files.checkWrite(path, 'sqlite3', 'open');
      if (error !== undefined) throw error;
    };
    if (p.startsWith(text, 'file:')) {
      const uri = kit.form.split(kit.form.split(p.slice(text, 5), '#')[0], '?')[0];
      check(kit.decodeURI(p.startsWith(uri, '//') ? `/${p.slice(uri, p.indexOf(uri, '/', 2) + 1)}` : uri));
    } else {
      check(text);
    }
  }

  if (typeof DatabaseSync === 'function') {
    const guarded = new p.Proxy(DatabaseSync, {
      __proto__: null,
      construct(target, args, newTarget) {
        const isUrl = args[0] !== null && typeof args[0] === 'object' && kit.isURL(args[0]);
        const name = isUrl ? kit.hrefOf(args[0]) : publicPath(args[0]);
        if (name === null) return p.construct(target, args, newTarget);
        const options = { __proto__: null }; // read again by native code: nothing may answer from a prototype
        const given = args[1] !== null && typeof args[1] === 'object' ? args[1] : { __proto__: null };
        const names = p.keys(given);
        for (let i = 0; i < names.length; i += 1) options[names[i]] = given[names[i]];
        if (options.allowExtension) {
          const error = report.forbid('SQLite extensions', 'they are native code, which no guard can follow');
          if (error !== undefined) throw error;
        }
        checkFile(name, options.readOnly === true);
        return p.construct(target, [isUrl ? new kit.URL(name) : name, options], newTarget === guarded ? target : newTarget);
      },
    });
    const sql = (original) => function statement(...args) {
      args[0] = checkSql(args[0]);
      return p.apply(original, this, args);
    };
    const { prototype } = DatabaseSync;
    wrap(prototype, 'exec', sql, true);
    wrap(prototype, 'prepare', sql, true);
    kit.base.refuse(prototype, 'loadExtension', 'SQLite extensions', 'they are native code, which no guard can follow');
    kit.base.refuse(prototype, 'enableLoadExtension', 'SQLite extensions', 'they are native code, which no guard can follow');
    kit.base.refuse(prototype, 'createTagStore', 'SQL tag stores', 'their statements are not seen by the guard');
    put(prototype, 'constructor', guarded, true);
    put(exported, 'DatabaseSync', guarded);
  }
  wrap(exported, 'backup', (original) => function backup(source, path, ...rest) {
    const name = publicPath(path);
    if (name !== null) checkFile(name, false);
    return p.apply(original, this, [source, name ?? path, rest[0]]);
  });
};
