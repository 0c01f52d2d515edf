'use strict';
// The table of hooks: each file, and the built-in modules and bindings after whose loading it is installed, in this order.
// A row for every file of this folder; never scans for more. Notes of Node's own (process.moduleLoadList), and two objects that are always there.

module.exports = [
  ['fs', 'Internal Binding fs'],
  ['fs_public', 'NativeModule fs'],
  ['process', 'process'],
  ['resolve_modules', 'Module', 'NativeModule module'],
  ['module', 'NativeModule module'],
  ['child_process', 'Internal Binding process_wrap', 'Internal Binding spawn_sync'],
  ['net', 'Internal Binding tcp_wrap', 'Internal Binding pipe_wrap', 'Internal Binding udp_wrap'],
  ['net_public', 'NativeModule net'],
  ['dns', 'Internal Binding cares_wrap'],
  ['worker_threads', 'NativeModule worker_threads'],
  ['inspector', 'Internal Binding inspector'],
  ['v8', 'NativeModule v8'],
  ['wasi', 'NativeModule wasi'],
  ['sqlite', 'NativeModule sqlite'],
  [
    'native_code', 'NativeModule crypto', 'NativeModule _tls_common', 'NativeModule tls', 'NativeModule trace_events', 'NativeModule ffi',
    'NativeModule vfs', 'NativeModule os',
  ],
];
