'use strict';
// The path form is held to the vectors of agentbox-policy, the same files that the Python tests read.
const assert = require('node:assert');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const test = require('node:test');

const source = process.env.AGENTBOX_NODE_JS ?? path.join(__dirname, '../../src/agentbox/node/js');
const p = require(path.join(source, 'primordials.cjs'));
const form = require(path.join(source, 'forms/path.cjs'))(p);
const vectors = path.join(__dirname, '../../../agentbox-policy/vectors');

function rows(kind) {
  return fs.readFileSync(path.join(vectors, `${kind}.jsonl`), 'utf8').trim().split('\n').map((line) => JSON.parse(line));
}

const base = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), 'agentbox-vectors-')));
test.after(() => fs.rmSync(base, { recursive: true }));

/** The vector with its files and links made in a fresh folder, and `{tmp}` replaced by it. */
function atHome(row) {
  const folder = fs.mkdtempSync(path.join(base, 'vector-'));
  return JSON.parse(JSON.stringify(row).replaceAll('{tmp}', folder));
}

for (const kind of ['read', 'list', 'write']) {
  for (const row of rows(kind)) {
    test(`${kind}: ${row.name}`, () => {
      const { rules, cases, cwd } = atHome(row);
      const compiled = form.compile(rules);
      for (const { target, allowed, line, fix } of cases) {
        if (target.length !== 2) continue; // the form takes an access and a path
        const index = form.decide(target[0], target[1], compiled);
        assert.strictEqual(index >= 0, allowed, `${target}`);
        if (allowed) assert.strictEqual(rules[index].line, line, `${target}`);
        else assert.strictEqual(form.fix(target[0], target[1], cwd) || null, fix ?? null, `${target}`);
      }
    });
  }
}

test('a denial that no rule could undo names none', () => {
  assert.strictEqual(form.fix('read', '/proc/self/mem', '/w'), '');
  assert.strictEqual(form.fix('read', 'relative', '/w'), '');
  assert.strictEqual(form.fix('exec', '/w/x', '/w'), '');
});

test('what is shown fits one line', () => {
  const text = form.deniedText('fs.read', `/a\n${'x'.repeat(500)}`, 'why', 'read: ./a', 'p');
  assert.ok(!text.includes('\n') && text.includes('\\x0a') && text.includes('…'));
  assert.ok(text.endsWith('; to allow it, add this line to p: read: ./a'));
});
