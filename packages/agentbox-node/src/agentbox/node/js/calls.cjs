'use strict';
// Questions whose answer may take long, asked beside the event loop: SDK promises and name look-ups, each on a connection of its own.
// What comes back decides nothing here: the agent cannot gain by faking it, as every connect is asked for again.

module.exports = function makeCalls(kit) {
  const { p, pipes } = kit;
  const idle = [];
  let tasks = 0;

  function connect() {
    const channel = kit.makeChannel(kit, kit.channel.address, kit.channel.facts, kit.channel.thread);
    channel.greet(',"resume":true');
    const pipe = channel.handle();
    const one = { __proto__: null, channel, pipe, parts: [], done: null };
    const { streamBaseState, kReadBytesOrError, kArrayBufferOffset } = kit.binding('stream_wrap');
    pipes.setBlocking(pipe, false);
    pipe.onread = function onread(data) {
      const count = streamBaseState[kReadBytesOrError];
      if (count < 0 || data === undefined) return count === 0 ? undefined : channel.gone('it closed the channel');
      const text = p.decode(new p.Uint8Array(data, streamBaseState[kArrayBufferOffset], count));
      p.push(one.parts, text);
      if (p.endsWith(text, '\n')) finish(one);
      return undefined;
    };
    pipes.readStart(pipe);
    return one;
  }

  function finish(one) {
    const line = p.join(one.parts, '');
    const { done } = one;
    one.parts = [];
    one.done = null;
    pipes.unref(one.pipe);
    p.push(idle, one);
    done(p.setPrototypeOf(p.parse(line), null));
  }

  /** Every call is a task, so a lane, of its own: what runs side by side is not held to one order in a replay. */
  function put(kind, op, args, done) {
    let one;
    if (idle.length > 0) {
      one = idle[idle.length - 1];
      idle.length -= 1;
    } else {
      one = connect();
    }
    one.done = done;
    pipes.ref(one.pipe);
    tasks += 1;
    const task = kind === 'call' ? `,"task":${tasks}` : '';
    one.channel.send(`{"t":"${kind}","id":1,"op":${p.quote(op)},"thread":${kit.channel.thread}${task}${kit.report.site()},"args":{${args}}}\n`);
  }

  return p.freeze({
    __proto__: null,
    ask: (op, args, done) => put('ask', op, args, done),
    call: (op, args, done) => put('call', op, args, done),
  });
};
