'use strict';
// The guard channel from JavaScript (docs/spec/channel.md): synchronous lines over one unix socket a thread, without a helper thread.
// Decides nothing. When the supervisor cannot be reached the process ends, before whatever was to be announced.

const ONE_WAY_LIMIT = 32 * 1024;
const TEXT_LIMIT = 4096;
const PATIENCE = 250; // tries of 20 ms to get into the supervisor's queue of new connections

/**
 * A connection to the supervisor at `address`. `facts` are the members of hello that tell who speaks, `thread` is this thread's number.
 * The socket is made by a Pipe handle, the one way to it from JavaScript, and then used as a blocking descriptor.
 */
module.exports = function makeChannel(kit, address, facts, thread) {
  const { p, raw, pipes } = kit;
  const buffer = new p.Uint8Array(64 * 1024);
  const cell = new p.Int32Array(new p.SharedArrayBuffer(4));
  let pipe = null;
  let fd = -1;
  let device = 0;
  let inode = 0;
  let rest = '';
  let asked = 0;
  let task = '';

  /** End this process: nothing that it does would be decided or recorded (Failing closed). */
  function gone(why) {
    const text = `agentbox: the guard lost its supervisor; this process ends: ${why}\n`;
    raw.writeString(2, text, null, 'utf8', undefined, { __proto__: null });
    kit.end();
  }

  function pause(milliseconds) {
    p.wait(cell, 0, 0, milliseconds);
  }

  function status() {
    try {
      return raw.fstat(fd, false, undefined, true);
    } catch {
      return undefined; // closed
    }
  }

  function dial() {
    pipe = new pipes.Pipe(pipes.constants.SOCKET);
    const request = new pipes.PipeConnectWrap();
    request.oncomplete = function oncomplete() {};
    pipes.connect(pipe, request, address);
    pipes.setBlocking(pipe, true);
    pipes.unref(pipe);
    fd = pipes.fd(pipe);
    rest = '';
    const found = fd >= 0 ? status() : undefined;
    if (found === undefined) gone(`${address} cannot be opened`);
    device = found[0];
    inode = found[7];
  }

  /** Whether the descriptor is still our socket: the agent may close any number and open something else under it. */
  function isOurs() {
    const found = status();
    return found !== undefined && found[7] === inode && found[0] === device;
  }

  function write(bytes, length) {
    for (let at = 0; at < length;) {
      const failure = { __proto__: null, errno: 0, code: '' };
      const sent = raw.writeBuffer(fd, bytes, at, length - at, null, undefined, failure);
      if (failure.errno === 0) at += sent;
      else if (failure.code === 'EAGAIN') pause(1);
      else return failure.code;
    }
    return '';
  }

  /** Write a whole line; '' or what went wrong. Short lines go out in one write (Transport 4). */
  function put(line) {
    if (line.length * 3 <= buffer.length) return write(buffer, p.encodeInto(line, buffer).written);
    const bytes = p.encode(line);
    return write(bytes, bytes.length);
  }

  function readSome() {
    for (;;) {
      try {
        return raw.read(fd, buffer, 0, buffer.length, -1);
      } catch (error) {
        if (error.code !== 'EAGAIN' && error.code !== 'EINTR') gone(error.code);
        pause(1);
      }
    }
  }

  /** The next line from the supervisor, without its LF. */
  function receive() {
    for (;;) {
      const end = p.indexOf(rest, '\n');
      if (end >= 0) {
        const line = p.slice(rest, 0, end);
        rest = p.slice(rest, end + 1);
        return line;
      }
      const count = readSome();
      if (count === 0) gone('it closed the channel');
      rest += p.decode(p.subarray(buffer, 0, count));
    }
  }

  /** The next line as an object with a null prototype at its top. */
  function answer(kind) {
    let found;
    try {
      found = p.setPrototypeOf(p.parse(receive()), null);
    } catch {
      gone('its answer is not JSON');
    }
    if (found.t !== kind) gone(`got ${found.t}, expected ${kind}`);
    return found;
  }

  /** Connect and say hello; the welcome. `more` are members such as `"resume":true`. */
  function greet(more) {
    let problem = '';
    for (let tries = 0; tries < PATIENCE; tries += 1) {
      dial();
      problem = put(`{"t":"hello","v":1,${facts}${more}}\n`);
      if (problem !== 'ENOTCONN') break; // the queue was full (connect(2), EAGAIN)
      pipes.close(pipe);
      pause(20);
    }
    if (problem !== '') gone(problem);
    return answer('welcome');
  }

  function send(line) {
    if (!isOurs()) gone('the program closed its connection');
    const problem = put(line);
    if (problem !== '') gone(problem);
  }

  /** A JSON member; a text over 4096 letters is cut, and says so, in lines that have a limit. */
  function member(name, value, cut = true) {
    if (typeof value !== 'string') return `"${name}":${value === null ? 'null' : p.String(value)}`;
    if (!cut || value.length <= TEXT_LIMIT) return `"${name}":${p.quote(value)}`;
    return `"${name}":${p.quote(p.slice(value, 0, TEXT_LIMIT))},"cut":true`;
  }

  /** Judge an operation that Node does beside others and reports by a callback or a promise. All of them are one task, so a
   *  lane, of their own: in which order a pool of threads does them, and so what is done after each, is chance. */
  function beside(judge) {
    task = ',"task":0';
    try {
      return judge();
    } finally {
      task = '';
    }
  }

  /** One-way: `args` and `extra` are JSON members without braces. */
  function tell(kind, op, args, extra) {
    const line = `{"t":"${kind}","op":"${op}","thread":${thread}${task}${extra},"args":{${args}}}\n`;
    if (line.length > ONE_WAY_LIMIT / 3 && p.encode(line).length > ONE_WAY_LIMIT) {
      send(`{"t":"${kind}","op":"${op}","thread":${thread}${task}${extra},"args":{"cut":true}}\n`);
    } else {
      send(line);
    }
  }

  /** Ask or call and wait: the verdict or result, an object whose members are its own. */
  function ask(kind, op, args, more) {
    asked += 1;
    send(`{"t":"${kind}","id":${asked},"op":${p.quote(op)},"thread":${thread}${task}${more},"args":{${args}}}\n`);
    const found = answer(kind === 'ask' ? 'verdict' : 'result');
    if (found.id !== asked) gone('its answer is for another question');
    return found;
  }

  return p.freeze({ __proto__: null, ask, beside, gone, greet, handle: () => pipe, member, send, tell, address, facts, thread });
};
