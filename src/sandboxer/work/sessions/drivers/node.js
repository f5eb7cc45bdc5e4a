// Cells of JavaScript and TypeScript: one realm keeps the state; promises are waited for; the last value is shown.
// Runs inside a sandbox, in the interpreter that keeps the state.
"use strict";
const fs = require("fs");
const net = require("net");
const util = require("util");
const vm = require("vm");

const codeFd = Number(process.env.SANDBOXER_CODE);
const control = Number(process.env.SANDBOXER_CONTROL);
const ts = process.env.SANDBOXER_LANGUAGE === "typescript" ? require("typescript") : null;
for (const name of ["CODE", "CONTROL", "FLAG", "LANGUAGE"]) delete process.env[`SANDBOXER_${name}`];
const write = (data) => {
  while (data.length) data = data.subarray(fs.writeSync(control, data));
};
const answer = (word, text) => {
  const data = Buffer.from(String(text));
  write(Buffer.concat([Buffer.from(`${word} ${data.length}\n`), data]));
};

globalThis.require = require("module").createRequire(process.cwd() + "/");
globalThis.module = module;
globalThis.exports = module.exports;
let stop = null;
process.on("SIGINT", () => stop && stop(new Error("interrupted")));
process.on("uncaughtException", (error) => console.error(error));
process.on("unhandledRejection", (error) => console.error(error));
// What is printed is there when the cell ends, though these are pipes.
for (const stream of [process.stdout, process.stderr]) if (stream._handle) stream._handle.setBlocking(true);

// Scripts of `vm` cannot import by themselves.
globalThis._import = (from) => import(from);
const imported = (_, names, from) => {
  const lines = [`globalThis._module = await _import(${from});`];
  const [, first, all, some] = /^(?:([\w$]+)\s*,?\s*)?(?:\*\s*as\s+([\w$]+)|\{([^}]*)\})?$/.exec(names || "") || [];
  if (first) lines.push(`globalThis.${first} = _module.default ?? _module;`);
  if (all) lines.push(`globalThis.${all} = _module;`);
  for (const name of (some || "").split(",").map((word) => word.trim()).filter(Boolean)) {
    const [theirs, ours] = name.split(/\s+as\s+/);
    lines.push(`globalThis.${ours || theirs} = _module.${theirs};`);
  }
  return lines.join(" ");
};

// Types are left out and not checked. What is imported is kept: a later cell may be the first to use it.
const withoutTypes = (code) => {
  const compilerOptions = { target: "esnext", module: "esnext", isolatedModules: true };
  Object.assign(compilerOptions, { preserveValueImports: true, verbatimModuleSyntax: true });
  const made = ts.transpileModule(code, { compilerOptions, reportDiagnostics: true });
  const wrong = made.diagnostics.filter((one) => one.category === ts.DiagnosticCategory.Error && one.file);
  if (wrong.length) throw new SyntaxError(ts.flattenDiagnosticMessageText(wrong[0].messageText, "\n"));
  return made.outputText.replace(/^export \{\};$/m, "");
};

const compile = (code, filename) => {
  const begun = code.trimStart();
  if (begun.startsWith("{") && !begun.endsWith(";")) {
    try {
      return new vm.Script(`(${code}\n)`, { filename });
    } catch {}
  }
  try {
    return new vm.Script(code, { filename });
  } catch (error) {
    // A module's imports are awaited, as a cell is no module; what it imports is kept.
    const plain = code.replace(/^[ \t]*import\s+(?:([^'"]+?)\s+from\s+)?(['"][^'"]+['"]);?[ \t]*$/gm, imported);
    if (!/\bawait\b/.test(plain)) throw error;
    // Names that a cell with `await` declares at its outermost level are kept all the same.
    const kept = plain.replace(/^(?:const|let|var)\s+([A-Za-z_$][\w$]*)\s*=/gm, "globalThis.$1 =");
    try {
      return new vm.Script(`(async () => (${kept}\n))()`, { filename });
    } catch {
      return new vm.Script(`(async () => {${kept}\n})()`, { filename });
    }
  }
};

const run = async (n, code) => {
  try {
    let value = compile(ts ? withoutTypes(code) : code, `<cell ${n}>`).runInThisContext({ breakOnSigint: true });
    if (value && typeof value.then === "function") {
      value = await Promise.race([value, new Promise((_, reject) => (stop = reject))]);
    }
    if (value !== undefined) {
      globalThis._ = value;
      answer("value", util.inspect(value));
    }
    return 0;
  } catch (error) {
    const isError = error instanceof Error || (error && error.stack);
    answer("ename", isError ? error.name : typeof error);
    answer("evalue", isError ? error.message : util.inspect(error));
    answer("trace", isError ? error.stack : util.inspect(error));
    return 1;
  } finally {
    stop = null;
  }
};

let held = Buffer.alloc(0);
let busy = false;
const next = async () => {
  if (busy) return;
  const at = held.indexOf(10);
  if (at < 0) return;
  const [n, size] = held.subarray(0, at).toString().split(" ").map(Number);
  if (held.length < at + 1 + size) return;
  const code = held.subarray(at + 1, at + 1 + size).toString();
  held = held.subarray(at + 1 + size);
  busy = true;
  const status = await run(n, code);
  write(Buffer.from(`end ${status} ${n}\n`));
  busy = false;
  next();
};
const cells = new net.Socket({ fd: codeFd, readable: true, writable: false });
cells.on("data", (data) => {
  held = Buffer.concat([held, data]);
  next();
});
cells.on("end", () => process.exit(0));
write(Buffer.from("end 0 0\n"));
