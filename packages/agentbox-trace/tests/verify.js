// Verifies an agentbox trace: node verify.js FILE. Prints the head and exits 0 if it is intact and sealed, else 1.
const { createHash } = require("crypto"), { readFileSync } = require("fs");
const sha = (bytes) => createHash("sha256").update(bytes).digest("hex");
let data = readFileSync(process.argv[2]), prev = "0".repeat(64), seq = 0, line = Buffer.alloc(0), sealed = false;
for (let at = 0, end; at < data.length; at = end, seq++, prev = sha(line)) {
  line = data.subarray(at, end = data.indexOf(10, at) + 1 || data.length);
  const start = Buffer.from(`{"prev":"${prev}","seq":${seq},"ts":`);
  if (sealed || line.at(-1) !== 10 || !line.subarray(0, start.length).equals(start)) process.exit(1);
  sealed = /^[0-9.-]+,"kind":"meta","op":"run.end"/.test(line.toString("latin1", start.length));
}
process.exit(sealed && line.toString("latin1").endsWith(`,"sha":"${sha(line.subarray(0, -75))}"}\n`) ? console.log(prev) : 1);
