// The demo agent in JavaScript: four SDK effects, one direct read, and one thing that its policy forbids.
// `hatch run demo-node` runs it; by hand, serve this folder first: `python -m http.server 8765 --bind 127.0.0.1`.
'use strict';
const fs = require('node:fs');

const box = globalThis.agentbox;

async function main() {
  // Effects: agentbox does them on the agent's behalf, records the result, and gives it back in a replay.
  const task = box.readText('data/task.txt').trim();
  console.log(`task: ${task}`);

  const answer = await box.get(process.env.DEMO_URL ?? 'http://127.0.0.1:8765/data/notes.txt');
  console.log(`service: ${answer.status} ${answer.body.trim()}`);

  // Observation: an ordinary read; the guard lets it pass, hashes what is read, and checks it in a replay.
  const notes = fs.readFileSync('data/notes.txt', 'utf8').trimEnd().split('\n');
  console.log(`notes: ${notes.length} lines`);

  // Denial: no rule allows this, whatever function is used for it.
  try {
    fs.readFileSync('/etc/passwd', 'utf8');
  } catch (error) {
    console.log(`denied: ${error.message}`);
  }

  const moment = new Date(box.now()).toISOString();
  box.writeText('out/report.txt', `${task}\n${moment}: ${notes.length} notes, ${answer.body}`);
  console.log(`clock: ${moment}`);
}

main();
