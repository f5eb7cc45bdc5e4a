// What features.py does, through E2B's JavaScript client of whatever version is installed.
import { readFileSync } from 'node:fs'
import * as e2b from 'e2b'

const { Sandbox } = e2b
const WAIT_MS = 30_000
const { version } = JSON.parse(readFileSync(new URL('./node_modules/e2b/package.json', import.meta.url)))

class Absent extends Error {}
const assert = (is, why) => {
  if (!is) throw new Error(why)
}
const equal = (one, other) => assert(JSON.stringify(one) === JSON.stringify(other), `${JSON.stringify(one)} and not ${JSON.stringify(other)}`)
const raised = async (kind, call) => {
  const error = await call().then(() => null, (error) => error)
  assert(error instanceof e2b[kind], `${error?.name} and not ${kind}: ${error?.message}`)
}
const within = (promise) => Promise.race([promise, new Promise((_, no) => setTimeout(() => no(new Error('it did not happen')), WAIT_MS))])

const features = {
  'create, look, list, end': async () => {
    const sandbox = await Sandbox.create({ timeoutMs: 120_000, metadata: { by: 'matrix' }, envs: { GIVEN: '1' } })
    try {
      assert(await sandbox.isRunning(), 'it does not run')
      equal((await sandbox.commands.run('echo $GIVEN')).stdout, '1\n')
      const listed = await Sandbox.list()
      const found = listed.nextItems ? await listed.nextItems() : listed
      assert(found.some((one) => one.sandboxId === sandbox.sandboxId), 'it is not listed')
      await sandbox.setTimeout(300_000)
    } finally {
      await sandbox.kill()
    }
    assert(!(await sandbox.isRunning()), 'it runs')
    equal(await Sandbox.kill(sandbox.sandboxId), false)
  },
  connect: async (sandbox) => {
    const same = await Sandbox.connect(sandbox.sandboxId)
    equal((await same.commands.run('echo on')).stdout, 'on\n')
  },
  information: async (sandbox) => {
    if (!sandbox.getInfo) throw new Absent()
    equal((await sandbox.getInfo()).templateId, 'base')
  },
  metrics: async (sandbox) => {
    if (!sandbox.getMetrics) throw new Absent()
    assert((await sandbox.getMetrics())[0].cpuCount > 0, 'no CPU')
  },
  commands: async (sandbox) => {
    let heard = ''
    const done = await sandbox.commands.run('pwd; echo no >&2', { onStdout: (text) => (heard += text) })
    equal([done.stdout, done.stderr, heard], ['/home/user\n', 'no\n', '/home/user\n'])
    await raised('CommandExitError', () => sandbox.commands.run('exit 3'))
    await raised('TimeoutError', () => sandbox.commands.run('sleep 60', { timeoutMs: 1000 }))
  },
  'background, stdin, signals': async (sandbox) => {
    const reading = await sandbox.commands.run('read line; echo got $line', { background: true, stdin: true })
    assert((await sandbox.commands.list()).some((one) => one.pid === reading.pid), 'it is not listed')
    await sandbox.commands.sendStdin(reading.pid, 'this\n')
    equal((await reading.wait()).stdout, 'got this\n')
    const sleeping = await sandbox.commands.run('sleep 600', { background: true })
    const again = await sandbox.commands.connect(sleeping.pid)
    assert(await sandbox.commands.kill(sleeping.pid), 'not killed')
    await raised('CommandExitError', () => again.wait())
    await sleeping.wait().catch(() => {})
  },
  terminals: async (sandbox) => {
    let typed = ''
    const onData = (bytes) => (typed += new TextDecoder().decode(bytes))
    const terminal = await sandbox.pty.create({ cols: 80, rows: 24, onData })
    await sandbox.pty.resize(terminal.pid, { cols: 100, rows: 40 })
    await sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode('stty size; exit 0\n'))
    await terminal.wait()
    assert(typed.includes('40 100'), typed)
  },
  files: async (sandbox) => {
    await sandbox.files.write('notes/a ü.txt', 'text')
    equal(await sandbox.files.read('notes/a ü.txt'), 'text')
    equal((await sandbox.files.list('notes')).map((one) => one.name), ['a ü.txt'])
    equal((await sandbox.files.rename('notes/a ü.txt', 'b')).path, '/home/user/b')
    assert(await sandbox.files.makeDir('made'), 'not made')
    await sandbox.files.remove('b')
    equal(await sandbox.files.exists('b'), false)
    await raised('NotFoundError', () => sandbox.files.read('b'))
  },
  'many files at once': async (sandbox) => {
    const entries = [0, 1, 2].map((no) => ({ path: `many/${no}`, data: `${no}` }))
    equal((await sandbox.files.write(entries)).length, 3)
    equal(await sandbox.files.read('many/2'), '2')
  },
  'watch a folder': async (sandbox) => {
    await sandbox.files.makeDir('watched')
    let tell
    const told = new Promise((resolve) => (tell = resolve))
    const watcher = await sandbox.files.watchDir('watched', (event) => event.name === 'new' && tell())
    await sandbox.files.write('watched/new', 'x')
    await within(told)
    await watcher.stop()
  },
  'signed addresses': async (sandbox) => {
    const address = await sandbox.downloadUrl('signed')
    // They need a host of their own, which there is only by a domain.
    if (process.env.E2B_SANDBOX_URL || !address.includes('signature')) throw new Absent()
    await sandbox.files.write('signed', 'by address')
    equal(await (await fetch(address)).text(), 'by address')
  },
  'pause and resume': async () => {
    if (!Sandbox.prototype.pause) throw new Absent()
    const sandbox = await Sandbox.create({ timeoutMs: 120_000 })
    try {
      await sandbox.files.write('kept', 'on')
      await sandbox.pause()
      equal(await sandbox.isRunning(), false)
      await Sandbox.connect(sandbox.sandboxId)
      equal(await sandbox.files.read('kept'), 'on')
    } finally {
      await Sandbox.kill(sandbox.sandboxId)
    }
  },
  'snapshots and forks': async () => {
    if (!Sandbox.prototype.createSnapshot || !Sandbox.prototype.fork) throw new Absent()
    const sandbox = await Sandbox.create({ timeoutMs: 120_000 })
    try {
      await sandbox.files.write('kept', 'on')
      const kept = await sandbox.createSnapshot()
      const [fork] = await sandbox.fork({ timeoutMs: 60_000 })
      const made = [fork, await Sandbox.create(kept.snapshotId, { timeoutMs: 60_000 })]
      for (const one of made) {
        equal(await one.files.read('kept'), 'on')
        await one.kill()
      }
      equal([await Sandbox.deleteSnapshot(kept.snapshotId), await Sandbox.deleteSnapshot(kept.snapshotId)], [true, false])
    } finally {
      await Sandbox.kill(sandbox.sandboxId)
    }
  },
  'a wrong key': () => {
    // The first clients have no class of their own for what a server refuses.
    const kind = version.startsWith('1.') ? 'SandboxError' : 'AuthenticationError'
    return raised(kind, () => Sandbox.create({ apiKey: `e2b_${'0'.repeat(40)}` }))
  },
  'an unknown template': () => raised('SandboxError', () => Sandbox.create('no-such-template')),
  'code interpreter': async () => {
    const { Sandbox: Interpreter } = await import('@e2b/code-interpreter')
    const sandbox = await Interpreter.create({ timeoutMs: 120_000 })
    try {
      await sandbox.runCode('x = 20')
      const done = await sandbox.runCode("print('said'); x + 1")
      equal([done.text, done.logs.stdout], ['21', ['said\n']])
      equal((await sandbox.runCode('1 / 0')).error.name, 'ZeroDivisionError')
      const context = await sandbox.createCodeContext({ cwd: '/tmp' })
      equal((await sandbox.runCode('import os; os.getcwd()', { context })).text, '/tmp')
    } finally {
      await sandbox.kill()
    }
  },
}

const sandbox = await Sandbox.create({ timeoutMs: 600_000 })
const seen = {}
for (const [title, check] of Object.entries(features)) {
  try {
    await check(sandbox)
    seen[title] = true
  } catch (error) {
    seen[title] = error instanceof Absent ? false : `${error.name}: ${error.message}`.slice(0, 400)
  }
}
await sandbox.kill()
console.log(JSON.stringify(seen))
process.exit(0)
