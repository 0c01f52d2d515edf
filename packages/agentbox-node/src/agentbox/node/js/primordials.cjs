'use strict';
// The intrinsics that the guard uses, taken before any code of the agent can replace them.
// Never looks anything up on a prototype later: methods are uncurried here, once.

const { bind, call } = Function.prototype;
const uncurry = bind.bind(call);
const TypedArray = Object.getPrototypeOf(Uint8Array);

function getter(object, name) {
  return uncurry(Object.getOwnPropertyDescriptor(object, name).get);
}

const { defineProperty } = Object;
const add = uncurry(Set.prototype.add);

/** Append to an array. Not as Array.prototype.push does it, which hands what it appends to a setter of that number on Array.prototype. */
function push(list, value) {
  defineProperty(list, list.length, { __proto__: null, value, writable: true, enumerable: true, configurable: true });
}

/** A Set of a list's elements. `new Set(list)` would ask the iterator of arrays and Set.prototype.add, which are the agent's to change. */
function setOf(list) {
  const made = new Set();
  for (let i = 0; i < list.length; i += 1) add(made, list[i]);
  return made;
}

module.exports = Object.freeze({
  __proto__: null,
  uncurry,
  apply: Reflect.apply,
  construct: Reflect.construct,
  reflectDefine: Reflect.defineProperty,
  ownKeys: Reflect.ownKeys,
  defineProperty,
  descriptor: Object.getOwnPropertyDescriptor,
  create: Object.create,
  freeze: Object.freeze,
  keys: Object.keys,
  prototypeOf: Object.getPrototypeOf,
  setPrototypeOf: Object.setPrototypeOf,
  symbolsOf: Object.getOwnPropertySymbols,
  hasOwn: Object.hasOwn,
  isPrototypeOf: uncurry(Object.prototype.isPrototypeOf),
  ObjectPrototype: Object.prototype,
  isArray: Array.isArray,
  push,
  join: uncurry(Array.prototype.join),
  startsWith: uncurry(String.prototype.startsWith),
  endsWith: uncurry(String.prototype.endsWith),
  includes: uncurry(String.prototype.includes),
  indexOf: uncurry(String.prototype.indexOf),
  lastIndexOf: uncurry(String.prototype.lastIndexOf),
  slice: uncurry(String.prototype.slice),
  charCodeAt: uncurry(String.prototype.charCodeAt),
  codePointAt: uncurry(String.prototype.codePointAt),
  toLowerCase: uncurry(String.prototype.toLowerCase),
  toUpperCase: uncurry(String.prototype.toUpperCase),
  trim: uncurry(String.prototype.trim),
  fromCodePoint: String.fromCodePoint,
  fromCharCode: String.fromCharCode,
  exec: uncurry(RegExp.prototype.exec),
  numberToString: uncurry(Number.prototype.toString),
  floor: Math.floor,
  String,
  Number,
  Error,
  TypeError,
  RangeError,
  Map,
  Set,
  WeakMap,
  Proxy,
  Promise,
  Uint8Array,
  Float64Array,
  Int32Array,
  DataView,
  setHas: uncurry(Set.prototype.has),
  setAdd: add,
  setOf,
  mapGet: uncurry(Map.prototype.get),
  mapSet: uncurry(Map.prototype.set),
  mapDelete: uncurry(Map.prototype.delete),
  weakGet: uncurry(WeakMap.prototype.get),
  weakSet: uncurry(WeakMap.prototype.set),
  resolve: Promise.resolve.bind(Promise),
  reject: Promise.reject.bind(Promise),
  then: uncurry(Promise.prototype.then),
  viewTag: getter(TypedArray.prototype, Symbol.toStringTag),
  viewLength: getter(TypedArray.prototype, 'length'),
  subarray: uncurry(TypedArray.prototype.subarray),
  viewSet: uncurry(TypedArray.prototype.set),
  parse: JSON.parse,
  quote: JSON.stringify,
  encode: TextEncoder.prototype.encode.bind(new TextEncoder()),
  encodeInto: TextEncoder.prototype.encodeInto.bind(new TextEncoder()),
  decodeStrict: TextDecoder.prototype.decode.bind(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })),
  decode: TextDecoder.prototype.decode.bind(new TextDecoder('utf-8', { ignoreBOM: true })),
  captureStackTrace: Error.captureStackTrace,
  wait: Atomics.wait,
  SharedArrayBuffer,
});
