// For bench figures: a number on each line of stdin is how often to create, run and destroy; answered by milliseconds.
import { createInterface } from "node:readline";
import { Sandboxer } from "../src/index.js";

const client = new Sandboxer();
for await (const line of createInterface({ input: process.stdin })) {
  const took: number[] = [];
  for (let left = Number(line); left > 0; left -= 1) {
    const began = performance.now();
    const sandbox = await client.create();
    await sandbox.run(["true"]);
    await sandbox.destroy();
    took.push(performance.now() - began);
  }
  console.log(JSON.stringify(took));
}
