'use strict';
// How an allowed act is recorded and a refused one explained; every hook ends here. Decides nothing.
// A refusal is returned as an Error, which the hook delivers the way that its caller expects.

const MUTATIONS = [
  'fs.write', 'fs.mkdir', 'fs.rmdir', 'fs.remove', 'fs.rename', 'fs.link', 'fs.symlink', 'fs.chmod', 'fs.chown', 'fs.utime', 'fs.truncate',
  'fs.xattr', 'fs.mknod',
];
const EACCES = 13;

module.exports = function makeReport(kit, welcome) {
  const { p, channel, form } = kit;
  const mutations = new p.Set(MUTATIONS);
  const asking = welcome.ask;
  const observe = welcome.mode === 'observe';
  const policy = welcome.policy.name || 'the policy';
  const codes = new p.Map(kit.errnoNames);

  function define(error, name, value) {
    if (value === undefined) return;
    p.defineProperty(error, name, { __proto__: null, value, writable: true, enumerable: true, configurable: true });
  }

  /** An Error of a refused or failed operation, shaped as node:fs shapes its own; facts that are undefined are left out. */
  function failure(text, number, facts) {
    const error = new p.Error(text);
    define(error, 'errno', -number);
    define(error, 'code', p.mapGet(codes, number) ?? 'EACCES');
    const names = p.keys(facts);
    for (let i = 0; i < names.length; i += 1) define(error, names[i], facts[names[i]]);
    return error;
  }

  /** Give an error that Node made on its own the words and facts of the refusal behind it. */
  function explain(error, refusal) {
    define(error, 'message', refusal.message);
    const names = ['op', 'target', 'rule', 'fix'];
    for (let i = 0; i < names.length; i += 1) define(error, names[i], refusal[names[i]]);
    if (typeof error.stack === 'string') {
      const at = p.indexOf(error.stack, '\n    at ');
      define(error, 'stack', `Error: ${refusal.message}${at < 0 ? '' : p.slice(error.stack, at)}`);
    }
    return error;
  }

  /** `file:line` of the innermost frame that is neither Node's nor the guard's, for divergence reports; '' if there is none. */
  function site() {
    const holder = { __proto__: null, stack: '' };
    const settings = { __proto__: null, prepareStackTrace: undefined, stackTraceLimit: 40 };
    const names = p.keys(settings);
    const mine = [p.descriptor(p.Error, names[0]), p.descriptor(p.Error, names[1])];
    try {
      for (let i = 0; i < names.length; i += 1) {
        p.reflectDefine(p.Error, names[i], { __proto__: null, value: settings[names[i]], writable: true, configurable: true });
      }
      p.captureStackTrace(holder, site);
    } finally {
      for (let i = 0; i < names.length; i += 1) {
        if (mine[i] === undefined) delete p.Error[names[i]];
        else p.reflectDefine(p.Error, names[i], mine[i]);
      }
    }
    const lines = typeof holder.stack === 'string' ? form.split(holder.stack, '\n') : [];
    for (let i = 1; i < lines.length; i += 1) {
      const found = p.exec(/(?:\(|at (?:async )?)(?:file:\/\/)?(\/[^()]*):(\d+):\d+\)?$/, lines[i]);
      if (found !== null && !p.startsWith(found[1], kit.folder)) return `${found[1]}:${found[2]}`;
    }
    return '';
  }

  function from() {
    const place = site();
    return place === '' ? '' : `,"site":${p.quote(p.slice(place, 0, 4096))}`;
  }

  /** Ask the supervisor to decide and record: {value} or {error}. `facts` go into the error. */
  function inquire(op, args, facts) {
    const verdict = channel.ask('ask', op, args, from());
    if (verdict.allow === true) return { __proto__: null, value: verdict.value, error: undefined };
    return { __proto__: null, value: undefined, error: refused(op, verdict, facts) };
  }

  /** The Error of a verdict that refuses. */
  function refused(op, verdict, facts) {
    const text = p.String(verdict.text ?? 'agentbox denied it');
    const found = p.exec(/; to allow it, add this line to .*?: ((?:read|write|net|exec|env): .*)$/, text);
    const target = p.exec(/^agentbox: [a-z.]+ denied: (.*?): /, text);
    return failure(text, verdict.errno ?? EACCES, {
      __proto__: null, op, target: target === null ? undefined : target[1], rule: null, fix: found === null ? null : found[1], ...facts,
    });
  }

  /** An allowed file operation: announce it, or ask where the session wants to be asked (replay, checkpoint). An Error or undefined. */
  function witness(op, args, facts) {
    if (kit.probe !== undefined) return undefined; // the guard's own look at whether it is live, and no act of the agent's
    if (asking === 'all' || (asking === 'writes' && p.setHas(mutations, op))) return inquire(op, args, facts).error;
    channel.tell('event', op, args, '');
    return undefined;
  }

  /** A refused operation: tell the supervisor; an Error that says what, why, and which line would allow it. Nothing in mode observe. */
  function deny(op, args, key, target, reason, fix, facts) {
    const { member } = channel;
    const extra = `,${member('key', key)},"target":${p.quote(p.slice(target, 0, 4096))},"reason":${p.quote(p.slice(reason, 0, 4096))},"rule":null,`
      + `"fix":${fix ? p.quote(p.slice(fix, 0, 4096)) : 'null'},"enforced":${observe ? 'false' : 'true'}`;
    channel.tell('deny', op, args, extra);
    if (observe) return undefined;
    return failure(form.deniedText(op, target, reason, fix, policy), EACCES, {
      __proto__: null, op, target, rule: null, fix: fix || null, ...facts,
    });
  }

  /** Refuse something that no rule can allow. */
  function forbid(name, reason) {
    return deny('code.load', channel.member('name', name), 'code', name, reason, '', { __proto__: null });
  }

  return p.freeze({ __proto__: null, define, deny, explain, failure, forbid, inquire, refused, site: from, witness });
};
