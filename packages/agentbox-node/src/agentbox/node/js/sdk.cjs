'use strict';
// The SDK, `globalThis.agentbox`: files, HTTP, programs, clock and randomness as recorded effects, with the ops and args of agentbox.client.
// It only asks: the supervisor decides, performs and records. It never performs an effect itself and never decides policy.

const MAX_LINE = 64 * 1024 * 1024; // docs/spec/channel.md, Transport 4
const MAX_TEXT_BODY = 64 * 1024; // above it base64 is shorter than JSON escapes may be
const NOT_STARTED = [2, 13, 8, 20]; // ENOENT, EACCES, ENOEXEC, ENOTDIR: execve(2) about the program

module.exports = function makeSdk(kit) {
  const { p, channel, report, calls } = kit;
  const { bufferFrom, base64Of, utf8Of, bytesFromBase64 } = kit.buffers;
  const { publicPath } = kit.base;

  function usage(text) {
    const error = new p.TypeError(text);
    report.define(error, 'code', 'ERR_INVALID_ARG_VALUE');
    return error;
  }

  // --- arguments: everything is turned into a plain value once ---

  /** A path argument, absolute; `..` and links are left for the supervisor. */
  function path(value, name) {
    let found = null;
    try {
      found = publicPath(value);
    } catch {
      // no path
    }
    if (found === null) throw usage(`agentbox: ${name}: expected a path as a text, a Buffer or a file: URL`);
    const { text } = kit.paths.plain(found);
    if (text === '' || p.includes(text, '\0')) throw usage(`agentbox: ${name}: expected a path, not empty and without NUL`);
    return text[0] === '/' ? text : `${kit.cwd()}/${text}`;
  }

  function text(value, name) {
    if (typeof value !== 'string') throw usage(`agentbox: ${name}: got a ${typeof value}, expected a text`);
    return value;
  }

  function seconds(options) {
    const { timeout } = options;
    if (timeout === undefined) return '';
    if (typeof timeout !== 'number' || !(timeout > 0)) throw usage('agentbox: timeout: expected milliseconds, more than 0');
    return `,"timeout":${timeout / 1000}`;
  }

  /** Options as a plain copy of their own members. */
  function plainOptions(value) {
    const made = { __proto__: null };
    if (value === undefined || value === null) return made;
    if (typeof value !== 'object') throw usage(`agentbox: options: got a ${typeof value}, expected an object`);
    const names = p.keys(value);
    for (let i = 0; i < names.length; i += 1) made[names[i]] = value[names[i]];
    return made;
  }

  /** A body as the channel carries it. */
  function body(value, name) {
    if (typeof value === 'string') return p.encode(value).length <= MAX_TEXT_BODY ? `{"text":${p.quote(wellFormed(value))}}` : packed(p.encode(value));
    const found = value !== null && typeof value === 'object' ? kit.paths.bytes(value) : null;
    if (found === null) throw usage(`agentbox: ${name}: expected a text or bytes`);
    return packed(found);
  }

  function wellFormed(value) {
    return p.decode(p.encode(value));
  }

  function packed(bytes) {
    return `{"base64":${p.quote(base64Of(bytes))}}`;
  }

  // --- answers ---

  function unpacked(value) {
    if (value === null || typeof value !== 'object') return bufferFrom(typeof value === 'string' ? value : '');
    return p.hasOwn(value, 'base64') ? bytesFromBase64(value.base64) : bufferFrom(p.String(value.text ?? ''));
  }

  function failed(op, answer, facts) {
    const error = answer.error !== null && typeof answer.error === 'object' ? p.setPrototypeOf(answer.error, null) : { __proto__: null };
    const words = p.String(error.text ?? `${op} failed`);
    const number = typeof error.errno === 'number' ? error.errno : 5;
    if (error.type === 'denied') {
      const made = report.refused(op, { __proto__: null, text: words, errno: 13 }, { __proto__: null });
      report.define(made, 'name', 'Denied');
      for (let i = 0; i < DENIAL.length; i += 1) if (error[DENIAL[i]] !== undefined) report.define(made, DENIAL[i], error[DENIAL[i]]);
      return made;
    }
    if (error.type === 'usage') return usage(words);
    if (error.type === 'checkpoint' || (error.type !== 'os' && error.type !== 'http')) {
      const made = new p.Error(words);
      report.define(made, 'code', error.type === 'checkpoint' ? 'ERR_AGENTBOX_CHECKPOINT' : 'ERR_AGENTBOX');
      if (error.type === 'checkpoint') report.define(made, 'name', 'CheckpointError');
      return made;
    }
    const isProgram = facts.path === undefined && facts.program !== undefined && p.setHas(notStarted, number);
    const made = report.failure(words, number, { __proto__: null, op, path: error.filename ?? (isProgram ? facts.program : facts.path) });
    if (error.type === 'http') report.define(made, 'name', 'RequestFailed');
    return made;
  }

  const DENIAL = ['target', 'rule', 'fix'];
  const notStarted = p.setOf(NOT_STARTED);

  function settle(op, answer, facts, make) {
    if (answer.ok !== true) throw failed(op, answer, facts);
    return make(p.setPrototypeOf(answer.value ?? {}, null));
  }

  function checkLength(op, args) {
    if (args.length < MAX_LINE / 3 || p.encode(args).length < MAX_LINE - 8192) return;
    throw report.failure(`agentbox: ${op}: the call is larger than the ${MAX_LINE} bytes that the channel carries`, 27, { __proto__: null, op });
  }

  /** A call that waits; `make` turns its value into what the caller gets. */
  function now_(op, args, facts, make) {
    checkLength(op, args);
    return settle(op, channel.ask('call', op, args, report.site()), facts, make);
  }

  /** The same call beside the event loop, as a promise. */
  function later(op, args, facts, make) {
    checkLength(op, args);
    return new p.Promise((resolve, reject) => {
      calls.call(op, args, (answer) => {
        try {
          resolve(settle(op, answer, facts, make));
        } catch (error) {
          reject(error);
        }
      });
    });
  }

  // --- the effects: each gives [op, args, facts, make], to be called either way ---

  const readBytes = (file) => {
    const name = path(file, 'readText');
    return ['fs.read', channel.member('path', name, false), { __proto__: null, path: name }, (value) => unpacked(value.body)];
  };

  const readText = (file) => {
    const call = readBytes(file);
    return [call[0], call[1], call[2], (value) => utf8Of(unpacked(value.body))];
  };

  const write = (file, content) => {
    const name = path(file, 'writeText');
    const args = `${channel.member('path', name, false)},"body":${body(content, 'content')}`;
    return ['fs.write', args, { __proto__: null, path: name }, () => undefined];
  };

  const writeText = (file, content) => write(file, text(content, 'content'));

  const request = (method, url, given) => {
    const options = plainOptions(given);
    const address = url !== null && typeof url === 'object' && kit.isURL(url) ? kit.hrefOf(url) : text(url, 'url');
    const fields = plainOptions(options.headers);
    let content;
    if (options.body !== undefined && options.body !== null) {
      const isPlain = typeof options.body === 'object' && kit.paths.bytes(options.body) === null;
      content = isPlain ? body(p.quote(options.body), 'body') : body(options.body, 'body');
      if (isPlain && !hasField(fields, 'content-type')) fields['Content-Type'] = 'application/json';
    }
    let headers = '';
    const names = p.keys(fields);
    for (let i = 0; i < names.length; i += 1) {
      headers += `${i > 0 ? ',' : ''}${p.quote(names[i])}:${p.quote(text(fields[names[i]], `headers: ${names[i]}`))}`;
    }
    const wait = seconds(options) || ',"timeout":30';
    const args = `${channel.member('method', text(method, 'method'), false)},${channel.member('url', address, false)},"headers":{${headers}}${wait}`
      + (content === undefined ? '' : `,"body":${content}`);
    return ['http.request', args, { __proto__: null }, response];
  };

  const get = (url, options) => request('GET', url, options);

  function hasField(fields, name) {
    const names = p.keys(fields);
    for (let i = 0; i < names.length; i += 1) if (p.toLowerCase(names[i]) === name) return true;
    return false;
  }

  /** An HTTP answer: any status is one. */
  function response(value) {
    const bytes = unpacked(value.body);
    const made = {
      status: value.status,
      ok: value.status >= 200 && value.status < 300,
      url: value.url ?? '',
      headers: value.headers ?? {},
      hops: value.hops ?? [],
      sha256: value.sha256 ?? '',
      body: utf8Of(bytes),
      bytes,
      json: () => p.parse(made.body),
    };
    return made;
  }

  const run = (argv, given) => {
    const options = plainOptions(given);
    if (!p.isArray(argv)) throw usage("agentbox: run: expected a list of arguments, as in run(['git', 'status'])");
    let words = '';
    let program;
    for (let i = 0; i < argv.length; i += 1) {
      const word = text(argv[i], `argv[${i}]`);
      program ??= word;
      words += `${i > 0 ? ',' : ''}${p.quote(word)}`;
    }
    const cwd = options.cwd === undefined ? kit.cwd() : path(options.cwd, 'cwd');
    const args = `"argv":[${words}],${channel.member('cwd', cwd, false)}`
      + (options.input === undefined ? '' : `,"input":${body(options.input, 'input')}`) + seconds(options);
    return ['proc.run', args, { __proto__: null, program }, completed];
  };

  /** A program that ended: code is 0 to 255, or 128+n for signal n. */
  function completed(value) {
    const out = unpacked(value.stdout);
    const err = unpacked(value.stderr);
    return {
      code: value.status, ok: value.status === 0, stdout: utf8Of(out), stderr: utf8Of(err), stdoutBytes: out, stderrBytes: err,
    };
  }

  const now = () => ['clock.now', '', { __proto__: null }, (value) => p.floor(value.value * 1000)];
  const random = () => ['random.float', '', { __proto__: null }, (value) => p.floor(value.value * 2 ** 48)];

  function waiting(effect, name) {
    return named((...args) => {
      const call = p.apply(effect, undefined, args);
      return now_(call[0], call[1], call[2], call[3]);
    }, name, effect.length);
  }

  function promised(effect, name) {
    return named((...args) => {
      try {
        const call = p.apply(effect, undefined, args);
        return later(call[0], call[1], call[2], call[3]);
      } catch (error) {
        return p.reject(error);
      }
    }, name, effect.length);
  }

  function named(made, name, length) {
    p.defineProperty(made, 'name', { __proto__: null, value: name });
    p.defineProperty(made, 'length', { __proto__: null, value: length });
    return p.freeze(made);
  }

  const effects = { __proto__: null, readText, readBytes, writeText, writeBytes: write, get, request, run, now, random };
  const box = {};
  const promises = {};
  const names = p.keys(effects);
  for (let i = 0; i < names.length; i += 1) {
    const name = names[i];
    const isRequest = name === 'get' || name === 'request';
    promises[name] = promised(effects[name], name);
    box[name] = isRequest ? promises[name] : waiting(effects[name], name);
    if (isRequest) box[`${name}Sync`] = waiting(effects[name], `${name}Sync`);
  }
  box.promises = p.freeze(promises);
  return p.freeze(box);
};
