'use strict';
// node:v8: heap snapshots are files, and flags of the engine can write files or break the language that the guard is written in.
// Snapshots are judged as writes; only flags that change sizes and garbage collection are let through.

const FLAGS = /^--(?:no[-_])?(?:expose[-_]gc|max[-_](?:old|semi|new)[-_]space[-_]size(?:=\d+)?|stack[-_]size(?:=\d+)?|optimize[-_]for[-_]size|gc[-_]interval(?:=-?\d+)?)$/;

module.exports = function install(kit, v8) {
  const { p, files, paths, report } = kit;
  const { refuse, wrap, publicPath } = kit.base;
  let count = 0;

  function judged(name) {
    const error = files.checkWrite(name, 'w', 'open');
    if (error !== undefined) throw error;
    return name;
  }

  wrap(v8, 'writeHeapSnapshot', (original) => function writeHeapSnapshot(...args) {
    count += 1;
    const given = args[0] === undefined ? `Heap-${kit.process.pid}-${kit.thread}-${count}.heapsnapshot` : publicPath(args[0]);
    if (given === null) return p.apply(original, v8, args);
    args[0] = judged(paths.plain(given).text);
    return p.apply(original, v8, args);
  });
  // The folder that it writes to is the working directory of that later time, which may be any.
  if (!kit.contained) refuse(v8, 'setHeapSnapshotNearHeapLimit', 'v8.setHeapSnapshotNearHeapLimit', 'its files are written where no guard sees it');
  wrap(v8, 'setFlagsFromString', (original) => function setFlagsFromString(flags) {
    const text = p.String(flags);
    if (p.exec(FLAGS, text) === null) {
      const error = report.forbid(`v8.setFlagsFromString('${text}')`, 'only sizes and garbage collection are changed at run time');
      if (error !== undefined) throw error;
    }
    return original(text);
  });
};
