// Drives a platform through E2B's own JavaScript client; prints what it saw as JSON.
import { CommandExitError, NotFoundError, Sandbox } from 'e2b'

const seen = {}
const sandbox = await Sandbox.create({ timeoutMs: 120_000, metadata: { by: 'node' }, allowInternetAccess: false })
try {
  const info = await sandbox.getInfo()
  seen.template = info.templateId
  seen.metadata = info.metadata
  const heard = []
  const done = await sandbox.commands.run('echo out; echo err >&2; pwd', { onStdout: (text) => heard.push(text) })
  seen.run = [done.stdout, done.stderr, done.exitCode, heard.join('')]
  seen.failed = await sandbox.commands.run('exit 4').catch((e) => [e instanceof CommandExitError, e.exitCode])
  const cat = await sandbox.commands.run('cat', { background: true, stdin: true })
  await sandbox.commands.sendStdin(cat.pid, 'typed\n')
  await sandbox.commands.closeStdin(cat.pid)
  seen.cat = (await cat.wait()).stdout
  const sleeping = await sandbox.commands.run('sleep 600', { background: true })
  seen.listed = (await sandbox.commands.list()).some((one) => one.pid === sleeping.pid)
  seen.killed = [await sleeping.kill(), await sandbox.commands.kill(sleeping.pid)]
  await sandbox.files.write('a/b.txt', 'text')
  await sandbox.files.write([{ path: 'many/1', data: 'one' }, { path: 'many/2', data: new Blob(['two']) }])
  seen.read = [await sandbox.files.read('a/b.txt'), await sandbox.files.read('many/2')]
  seen.names = (await sandbox.files.list('many')).map((one) => one.name)
  seen.missing = await sandbox.files.read('nothing').catch((e) => e instanceof NotFoundError)
  seen.made = [await sandbox.files.makeDir('folder'), await sandbox.files.makeDir('folder')]
  await new Promise((told) => {
    const look = (event) => event.name === 'new' && told()
    sandbox.files.watchDir('folder', look).then(() => sandbox.files.write('folder/new', 'x'))
  })
  let typed = ''
  const terminal = await sandbox.pty.create({ cols: 80, rows: 24, onData: (bytes) => (typed += new TextDecoder().decode(bytes)) })
  await sandbox.pty.resize(terminal.pid, { cols: 100, rows: 30 })
  await sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode('stty size; exit\n'))
  await terminal.wait()
  seen.terminal = typed.includes('30 100')
  await sandbox.setTimeout(300_000)
  await sandbox.pause()
  seen.paused = (await sandbox.getInfo()).state
  await sandbox.connect()
  seen.again = (await sandbox.commands.run('cat a/b.txt')).stdout
} finally {
  seen.gone = [await sandbox.kill(), await sandbox.isRunning()]
}
console.log(JSON.stringify(seen))
