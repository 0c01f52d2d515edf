'use strict';
// The table of hooks: which files there are, in the order in which they are installed. Never scans a folder for more.

module.exports = [
  'fs', 'fs_public', 'process', 'resolve_modules', 'module', 'child_process', 'net', 'net_public', 'dns', 'worker_threads', 'inspector', 'v8', 'wasi', 'sqlite',
  'native_code',
];
