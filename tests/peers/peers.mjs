// A check for each thing the SDK and the CLI do. Run by run.sh.
import { readFileSync } from 'node:fs'
import { spawn } from 'node:child_process'
import assert from 'node:assert/strict'

const host = JSON.parse(readFileSync(process.argv[2], 'utf8'))
const only = process.argv[3]
process.env.E2B_API_URL = host.url
process.env.E2B_SANDBOX_URL = host.url
process.env.E2B_API_KEY = host.key
const e2b = await import('e2b')
const { Sandbox } = e2b
const dir = new URL(".", import.meta.url).pathname

let passed = 0
let failed = 0
async function check(name, fn) {
  if (only && !name.includes(only)) return
  const from = Date.now()
  let timer
  const late = new Promise((_, no) => {
    timer = setTimeout(() => no(new Error('took too long')), 30000)
  })
  try {
    await Promise.race([fn(), late])
    passed++
    console.log(`ok ${name} (${Date.now() - from} ms)`)
  } catch (e) {
    failed++
    console.log(`bad ${name}: ${e?.stack ?? e}`)
  }
  clearTimeout(timer)
}
const sleep = (ms) => new Promise((r) => setTimeout(r, ms))
async function until(what, fn, ms = 5000) {
  for (const from = Date.now(); Date.now() - from < ms; await sleep(20))
    if (await fn()) return
  throw new Error(`never: ${what}`)
}
async function rejects(promise, kind) {
  try {
    await promise
  } catch (e) {
    assert.equal(e.constructor.name, kind, String(e))
    return e
  }
  throw new Error(`no ${kind}`)
}

// ---- control plane ----

const tag = `t${Date.now()}`
let sbx
await check('create', async () => {
  sbx = await Sandbox.create({
    metadata: { tag, odd: 'b c=&%' },
    envs: { FROM_CREATE: 'yes' },
    timeoutMs: 120000,
  })
  assert.match(sbx.sandboxId, /^[a-z0-9]+$/)
})
if (!sbx) sbx = await Sandbox.create({ envs: { FROM_CREATE: 'yes' } })

await check('connect', async () => {
  const again = await Sandbox.connect(sbx.sandboxId)
  assert.equal(again.sandboxId, sbx.sandboxId)
  assert.equal((await again.commands.run('echo again')).stdout, 'again\n')
  await sbx.connect({ timeoutMs: 120000 })
  await rejects(Sandbox.connect('inothing000000000000'),
    'SandboxNotFoundError')
})
await check('list', async () => {
  const page = Sandbox.list({ query: { metadata: { tag, odd: 'b c=&%' } } })
  const items = await page.nextItems()
  assert.deepEqual(items.map((i) => i.sandboxId), [sbx.sandboxId])
  assert.equal(items[0].metadata.odd, 'b c=&%')
  const none = Sandbox.list({ query: { metadata: { tag: 'other' } } })
  assert.deepEqual(await none.nextItems(), [])
})
await check('list in pages', async () => {
  const more = await Promise.all([1, 2].map(() =>
    Sandbox.create({ metadata: { page: tag } })))
  const seen = []
  const page = Sandbox.list({ query: { metadata: { page: tag } }, limit: 1 })
  while (page.hasNext) seen.push(...(await page.nextItems()))
  assert.equal(new Set(seen.map((i) => i.sandboxId)).size, 2)
  for (const m of more) assert.equal(await m.kill(), true)
})
await check('getInfo', async () => {
  const i = await sbx.getInfo()
  assert.equal(i.sandboxId, sbx.sandboxId)
  assert.equal(i.state, 'running')
  assert.equal(i.metadata.tag, tag)
  assert.ok(i.endAt > new Date())
})
await check('setTimeout', async () => {
  await sbx.setTimeout(300000)
  const left = (await sbx.getInfo()).endAt - Date.now()
  assert.ok(left > 250000 && left < 310000, String(left))
})
await check('isRunning', async () => {
  assert.equal(await sbx.isRunning(), true)
})
await check('getMetrics', async () => {
  assert.ok(Array.isArray(await sbx.getMetrics()))
})
await check('pause and resume', async () => {
  const p = await Sandbox.create({ timeoutMs: 60000 })
  const cmd = await p.commands.run('sleep 300', { background: true,
    timeoutMs: 0 })
  assert.equal(await p.pause(), true)
  assert.equal(await p.pause(), false)
  assert.equal((await Sandbox.getInfo(p.sandboxId)).state, 'paused')
  assert.equal(await p.isRunning(), false)
  await rejects(p.setTimeout(1000), 'SandboxNotFoundError')
  const q = await Sandbox.connect(p.sandboxId, { timeoutMs: 60000 })
  assert.ok((await q.commands.list()).some((x) => x.pid === cmd.pid))
  assert.equal(await q.commands.kill(cmd.pid), true)
  await p.kill()
})
await check('kill', async () => {
  const k = await Sandbox.create()
  assert.equal(await k.kill(), true)
  assert.equal(await k.kill(), false)
  assert.equal(await k.isRunning(), false)
  await rejects(k.commands.run('true'), 'SandboxNotFoundError')
  await rejects(k.files.read('x'), 'TimeoutError')
  await rejects(Sandbox.getInfo(k.sandboxId), 'SandboxNotFoundError')
})
await check('kill ends a running stream', async () => {
  const k = await Sandbox.create()
  const cmd = await k.commands.run('sleep 100', { background: true })
  const end = rejects(cmd.wait(), 'TimeoutError')
  await sleep(100)
  await k.kill()
  await end
})
await check('the timeout kills', async () => {
  const k = await Sandbox.create({ timeoutMs: 60000 })
  await k.setTimeout(0)
  await until('it is gone', async () => !(await k.isRunning()))
})
await check('a wrong key', async () => {
  const bad = { apiKey: 'e2b_0000000000000000000000000000000000000000' }
  await rejects(Sandbox.create(bad), 'AuthenticationError')
})
await check('snapshots answer in the protocol', async () => {
  try {
    await sbx.createSnapshot()
  } catch (e) {
    assert.match(String(e), /snapshot/i)
  }
  if (Sandbox.listSnapshots)
    assert.ok(Array.isArray(await Sandbox.listSnapshots().nextItems()))
})
await check('updateNetwork', async () => {
  try {
    await sbx.updateNetwork({ allowInternetAccess: true })
  } catch (e) {
    assert.match(String(e), /network/i)
  }
})

// ---- commands ----

await check('commands.run', async () => {
  const r = await sbx.commands.run('echo out; echo err >&2; echo $FROM_CREATE')
  assert.equal(r.stdout, 'out\nyes\n')
  assert.equal(r.stderr, 'err\n')
  assert.equal(r.exitCode, 0)
})
await check('run with an exit status', async () => {
  const e = await rejects(sbx.commands.run('exit 7'), 'CommandExitError')
  assert.equal(e.exitCode, 7)
})
await check('run with cwd, envs, user', async () => {
  const r = await sbx.commands.run('pwd; echo $A $HOME; id -un', {
    cwd: '/tmp', envs: { A: 'b c' } })
  assert.equal(r.stdout, '/tmp\nb c /home/user\nuser\n')
  const root = await sbx.commands.run('id -un', { user: 'root' })
  assert.match(root.stdout, /^(root|user)\n$/)
  await rejects(sbx.commands.run('true', { cwd: '/nope' }),
    'InvalidArgumentError')
  await rejects(sbx.commands.run('true', { user: 'nobody0' }),
    'AuthenticationError')
})
await check('run with much output', async () => {
  let pieces = 0
  const r = await sbx.commands.run('head -c 5000000 /dev/zero | tr "\\0" x', {
    onStdout: () => pieces++ })
  assert.equal(r.stdout.length, 5000000)
  assert.ok(pieces > 50)
})
await check('run is streamed', async () => {
  const times = []
  await sbx.commands.run('for i in 1 2 3; do echo $i; sleep 0.3; done', {
    onStdout: () => times.push(Date.now()) })
  assert.ok(times.length >= 3 && times[2] - times[0] > 400)
})
await check('the timeout of a command', async () => {
  const from = Date.now()
  await rejects(sbx.commands.run('sleep 30', { timeoutMs: 500 }),
    'TimeoutError')
  assert.ok(Date.now() - from < 3000)
})
await check('the timeout of a command nobody listens to', async () => {
  const cmd = await sbx.commands.run('sleep 30',
    { background: true, timeoutMs: 700 })
  await cmd.disconnect()
  const alive = async () =>
    (await sbx.commands.list()).some((p) => p.pid === cmd.pid)
  assert.equal(await alive(), true)
  await until('it is killed', async () => !(await alive()), 3000)
})
await check('background, disconnect, connect, list, kill', async () => {
  const cmd = await sbx.commands.run(
    'trap "" HUP; echo begin; while :; do sleep 0.1; echo tick; done',
    { background: true, timeoutMs: 0 })
  await until('output', () => cmd.stdout.includes('tick'))
  await cmd.disconnect()
  const list = await sbx.commands.list()
  const found = list.find((p) => p.pid === cmd.pid)
  assert.equal(found.cmd, '/bin/bash')
  let late = ''
  const again = await sbx.commands.connect(cmd.pid, {
    onStdout: (s) => { late += s } })
  await until('late output', () => late.includes('tick'))
  assert.ok(!late.includes('begin'))
  assert.equal(await sbx.commands.kill(cmd.pid), true)
  await rejects(again.wait(), 'CommandExitError')
  assert.equal(await sbx.commands.kill(cmd.pid), false)
  assert.ok(!(await sbx.commands.list()).some((p) => p.pid === cmd.pid))
})
await check('sendStdin and closeStdin', async () => {
  const cmd = await sbx.commands.run('cat', { background: true, stdin: true })
  await sbx.commands.sendStdin(cmd.pid, 'hello ')
  await cmd.sendStdin('wörld\n')
  await until('the echo', () => cmd.stdout === 'hello wörld\n')
  await sbx.commands.closeStdin(cmd.pid)
  assert.equal((await cmd.wait()).exitCode, 0)
})
await check('children that hold the output', async () => {
  const from = Date.now()
  const r = await sbx.commands.run('sleep 20 & echo x')
  assert.equal(r.stdout, 'x\n')
  assert.ok(Date.now() - from < 5000)
})

// ---- terminals ----

await check('pty', async () => {
  let out = ''
  const td = new TextDecoder()
  const t = await sbx.pty.create({ cols: 80, rows: 24,
    onData: (d) => { out += td.decode(d, { stream: true }) } })
  const say = (s) => sbx.pty.sendInput(t.pid, new TextEncoder().encode(s))
  await say('stty size; tty\n')
  await until('the size', () => /24 80/.test(out))
  await until('a name', () => /\/dev\/(pts|console|tty)/.test(out))
  await sbx.pty.resize(t.pid, { cols: 100, rows: 30 })
  await say('stty size\n')
  await until('the new size', () => /30 100/.test(out))
  await say('sleep 100\n')
  await sleep(300)
  await say('\x03')
  await say('echo $((40+2))\n')
  await until('the interrupt', () => /42/.test(out))
  await t.disconnect()
  let more = ''
  const again = await sbx.pty.connect(t.pid, {
    onData: (d) => { more += td.decode(d, { stream: true }) } })
  await say('echo $((50+3))\n')
  await until('the reconnection', () => /53/.test(more))
  await say('exit 4\n')
  assert.equal((await rejects(again.wait(), 'CommandExitError')).exitCode, 4)
})
await check('pty kill', async () => {
  const t = await sbx.pty.create({ cols: 80, rows: 24, onData: () => {} })
  assert.equal(await sbx.pty.kill(t.pid), true)
  await rejects(t.wait(), 'CommandExitError')
})

// ---- files ----

await check('files.write and read', async () => {
  const i = await sbx.files.write('dir/a.txt', 'héllo\n')
  assert.equal(i.path, '/home/user/dir/a.txt')
  assert.equal(i.name, 'a.txt')
  assert.equal(await sbx.files.read('dir/a.txt'), 'héllo\n')
  assert.equal((await sbx.commands.run('cat dir/a.txt; stat -c %U dir/a.txt'))
    .stdout, 'héllo\nuser\n')
  await sbx.files.write('dir/empty', '')
  assert.equal(await sbx.files.read('dir/empty'), '')
})
await check('files in bytes, blobs and streams', async () => {
  const bytes = new Uint8Array(300000).map((_, i) => (i * 7 + (i >> 8)) & 255)
  await sbx.files.write('bytes', bytes.buffer)
  assert.deepEqual(await sbx.files.read('bytes', { format: 'bytes' }), bytes)
  await sbx.files.write('stream', new Blob([bytes]).stream())
  const blob = await sbx.files.read('stream', { format: 'blob' })
  assert.deepEqual(new Uint8Array(await blob.arrayBuffer()), bytes)
  await sbx.files.write('octets', new Blob([bytes]),
    { useOctetStream: true, gzip: true })
  const stream = await sbx.files.read('octets', { format: 'stream',
    gzip: true })
  const all = []
  for await (const c of stream) all.push(...c)
  assert.equal(all.length, bytes.length)
})
await check('many files in one upload', async () => {
  const r = await sbx.files.write([
    { path: 'many/1', data: 'one' }, { path: '/tmp/many 2', data: 'two' }])
  assert.deepEqual(r.map((x) => x.path),
    ['/home/user/many/1', '/tmp/many 2'])
  assert.equal(await sbx.files.read('/tmp/many 2'), 'two')
})
await check('list, exists, getInfo, makeDir, rename, remove', async () => {
  assert.equal(await sbx.files.makeDir('l/sub'), true)
  assert.equal(await sbx.files.makeDir('l/sub'), false)
  await sbx.files.write('l/sub/f', '12345')
  await sbx.commands.run('ln -s sub/f l/link')
  const one = await sbx.files.list('l')
  assert.deepEqual(one.map((e) => e.name), ['link', 'sub'])
  const two = await sbx.files.list('l', { depth: 2 })
  assert.ok(two.some((e) => e.path === '/home/user/l/sub/f' && e.size === 5))
  const info = await sbx.files.getInfo('l/sub/f')
  assert.equal(info.type, 'file')
  assert.equal(info.permissions, '-rw-r--r--')
  assert.equal(info.owner, 'user')
  const link = await sbx.files.getInfo('l/link')
  assert.equal(link.symlinkTarget, '/home/user/l/sub/f')
  assert.equal(await sbx.files.exists('l/sub/f'), true)
  const moved = await sbx.files.rename('l/sub/f', 'l/new/g')
  assert.equal(moved.path, '/home/user/l/new/g')
  assert.equal(await sbx.files.exists('l/sub/f'), false)
  await sbx.files.remove('l')
  await sbx.files.remove('l')
  assert.equal(await sbx.files.exists('l'), false)
})
await check('errors of files', async () => {
  await rejects(sbx.files.read('none'), 'FileNotFoundError')
  await rejects(sbx.files.list('none'), 'FileNotFoundError')
  await rejects(sbx.files.read('/home'), 'InvalidArgumentError')
  await rejects(sbx.files.rename('none', 'x'), 'FileNotFoundError')
  await rejects(sbx.files.read('x', { user: 'nobody0' }),
    'AuthenticationError')
})
await check('nothing leads out of the box', async () => {
  await sbx.commands.run('ln -sf /../../../../etc/hostname up; ' +
    'ln -sf /proc/kcore core')
  const inside = (await sbx.commands.run('cat /etc/hostname || true')).stdout
  const got = await sbx.files.read('up').catch(() => '')
  assert.equal(got, inside)
  await assert.rejects(sbx.files.read('core'))
  await assert.rejects(sbx.files.write('/proc/sys/kernel/hostname', 'x'))
  await assert.rejects(sbx.files.write('/etc/passwd', 'x'))
})
await check('metadata of files', async () => {
  await sbx.files.write('meta', 'x', { metadata: { who: 'me' } })
  const i = await sbx.files.getInfo('meta')
  assert.deepEqual(i.metadata, { who: 'me' })
})
await check('files.watchDir', async () => {
  await sbx.files.makeDir('w')
  const seen = []
  const w = await sbx.files.watchDir('w', (e) => {
    seen.push(`${e.type} ${e.name}`) }, { recursive: true,
    includeEntry: true })
  await sbx.files.write('w/f', 'x')
  await until('create', () => seen.includes('create f'))
  await until('write', () => seen.includes('write f'))
  await sbx.commands.run('mkdir w/sub')
  await until('the directory', () => seen.includes('create sub'))
  await sbx.commands.run('echo y >w/sub/g; mv w/sub/g w/sub/h; rm w/sub/h')
  await until('remove', () => seen.includes('remove sub/h'))
  assert.ok(seen.includes('rename sub/g'))
  assert.ok(!seen.some((s) => s.includes('upload')), seen.join())
  await w.stop()
  await rejects(sbx.files.watchDir('none', () => {}), 'FileNotFoundError')
})

// what only the Python SDK calls
async function raw(path, body, headers = {}) {
  const r = await fetch(host.url + path, {
    method: 'POST', body: JSON.stringify(body),
    headers: { 'content-type': 'application/json',
      'E2b-Sandbox-Id': sbx.sandboxId, 'E2b-Sandbox-Port': '49983',
      'X-Access-Token': sbx.envdAccessToken ?? '', ...headers } })
  return { status: r.status, body: await r.json() }
}
const fs = (call, body) => raw(`/filesystem.Filesystem/${call}`, body)
await check('polled watchers', async () => {
  await sbx.files.makeDir('pw')
  const { watcherId } = (await fs('CreateWatcher', { path: 'pw' })).body
  await sbx.files.write('pw/f', 'x')
  await sleep(100)
  const ev = (await fs('GetWatcherEvents', { watcherId })).body.events
  assert.ok(ev.some((e) => e.name === 'f' &&
    e.type === 'EVENT_TYPE_CREATE'))
  assert.equal((await fs('RemoveWatcher', { watcherId })).status, 200)
  assert.equal((await fs('GetWatcherEvents', { watcherId })).status, 404)
})
await check('compose', async () => {
  await sbx.files.write('c1', 'one ')
  await sbx.files.write('c2', 'two')
  const r = await raw('/files/compose', { source_paths: ['c1', 'c2'],
    destination: 'whole' })
  assert.equal(r.status, 200)
  assert.equal(r.body.path, '/home/user/whole')
  assert.equal(await sbx.files.read('whole'), 'one two')
})
await check('no token, no way in', async () => {
  const r = await raw('/process.Process/List', {}, { 'X-Access-Token': 'x' })
  assert.equal(r.status, 401)
  assert.equal(r.body.code, 401)
  const f = await fetch(`${host.url}/files?path=whole`, { headers: {
    'E2b-Sandbox-Id': sbx.sandboxId, 'E2b-Sandbox-Port': '49983' } })
  assert.equal(f.status, 401)
  await f.text()
})
await check('uploadUrl and downloadUrl', async () => {
  const up = await sbx.uploadUrl('signed.txt')
  const form = new FormData()
  form.append('file', new Blob(['signed']), 'signed.txt')
  assert.equal((await fetch(up, { method: 'POST', body: form })).status, 200)
  const down = await sbx.downloadUrl('signed.txt',
    { useSignatureExpiration: 60 })
  assert.equal(await (await fetch(down)).text(), 'signed')
  const bad = await fetch(down.replace('signed.txt', 'other.txt'))
  assert.equal(bad.status, 401)
  const old = await sbx.downloadUrl('signed.txt',
    { useSignatureExpiration: -10 })
  assert.equal((await fetch(old)).status, 401)
})
await check('ranges', async () => {
  await sbx.files.write('r', '0123456789')
  const get = (range) => fetch(`${host.url}/files?path=r`, { headers: {
    'E2b-Sandbox-Id': sbx.sandboxId, 'E2b-Sandbox-Port': '49983',
    'X-Access-Token': sbx.envdAccessToken ?? '', range } })
  const r = await get('bytes=4-')
  assert.equal(r.status, 206)
  assert.equal(await r.text(), '456789')
  assert.equal((await get('bytes=10-')).status, 416)
})
await check('a port of the box', async () => {
  const srv = await sbx.commands.run('python3 -m http.server 8123 -d /tmp',
    { background: true })
  await sbx.files.write('/tmp/hi.txt', 'from inside')
  const get = () => fetch(`${host.url}/hi.txt`, { headers: {
    'E2b-Sandbox-Id': sbx.sandboxId, 'E2b-Sandbox-Port': '8123' } })
  await until('the server', async () => (await get()).status === 200)
  assert.equal(await (await get()).text(), 'from inside')
  await srv.kill()
})

// ---- the CLI ----

function cli(args, { input, env } = {}) {
  return new Promise((done) => {
    const p = spawn(process.execPath,
      [`${dir}node_modules/.bin/e2b`, ...args],
      { env: { ...process.env, ...env, NO_COLOR: '1' },
        stdio: [input === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'] })
    let out = ''
    let err = ''
    p.stdout.on('data', (d) => { out += d })
    p.stderr.on('data', (d) => { err += d })
    if (input !== undefined) p.stdin.end(input)
    const timer = setTimeout(() => p.kill('SIGKILL'), 25000)
    p.on('close', (code) => {
      clearTimeout(timer)
      done({ code, out, err, all: out + err })
    })
  })
}
let id = only && (await Sandbox.create()).sandboxId
await check('e2b sandbox create -d', async () => {
  const r = await cli(['sandbox', 'create', 'base', '-d'])
  assert.equal(r.code, 0, r.all)
  id = r.all.match(/\bi[a-z0-9]{15,}\b/)?.[0]
  assert.ok(id, r.all)
})
await check('e2b sandbox list', async () => {
  const r = await cli(['sandbox', 'list'])
  assert.equal(r.code, 0, r.all)
  assert.ok(r.out.includes(id), r.all)
})
await check('e2b sandbox info', async () => {
  const r = await cli(['sandbox', 'info', id])
  assert.equal(r.code, 0, r.all)
  assert.ok(r.out.includes(id), r.all)
})
await check('e2b sandbox exec', async () => {
  const r = await cli(['sandbox', 'exec', '-c', '/tmp', '-e', 'A=b', id,
    'echo $A; pwd; exit 5'])
  assert.equal(r.code, 5, r.all)
  assert.ok(r.out.includes('b\n/tmp\n'), r.all)
})
await check('e2b sandbox exec with input', async () => {
  const text = 'x'.repeat(200000)
  const r = await cli(['sandbox', 'exec', id, 'wc -c'], { input: text })
  assert.equal(r.out.trim(), '200000', r.all)
})
await check('e2b sandbox exec -b', async () => {
  const r = await cli(['sandbox', 'exec', '-b', id, 'sleep 100'])
  assert.equal(r.code, 0, r.all)
  assert.match(r.err, /\d+/)
})
await check('e2b sandbox pause, resume', async () => {
  const p = await cli(['sandbox', 'pause', id])
  assert.equal(p.code, 0, p.all)
  const l = await cli(['sandbox', 'list', '--state', 'paused'])
  assert.ok(l.out.includes(id), l.all)
  const r = await cli(['sandbox', 'resume', id])
  assert.equal(r.code, 0, r.all)
})
await check('e2b sandbox logs', async () => {
  const r = await cli(['sandbox', 'logs', id])
  assert.equal(r.code, 0, r.all)
})
await check('e2b sandbox metrics', async () => {
  const r = await cli(['sandbox', 'metrics', id])
  assert.equal(r.code, 0, r.all)
})
await check('e2b template list', async () => {
  const r = await cli(['template', 'list'])
  assert.equal(r.code, 0, r.all)
})
await check('e2b snapshot list', async () => {
  const r = await cli(['sandbox', 'snapshot', 'list'])
  if (!/unknown command/.test(r.all)) assert.equal(r.code, 0, r.all)
})
// a terminal for the CLI: util-linux's script
function terminal(args, input) {
  return new Promise((done) => {
    const cmd = [process.execPath, `${dir}node_modules/.bin/e2b`, ...args]
    const p = spawn('script', ['-qec', cmd.join(' '), '/dev/null'],
      { stdio: ['pipe', 'pipe', 'inherit'] })
    let out = ''
    let said = false
    p.stdout.on('data', (d) => {
      out += d
      if (!said && /[$#] ?(\x1b|$)/.test(out)) {
        said = true
        p.stdin.write(input)
      }
    })
    const timer = setTimeout(() => p.kill('SIGKILL'), 20000)
    p.on('error', () => done({ missing: true }))
    p.on('close', (code) => {
      clearTimeout(timer)
      done({ code, out })
    })
  })
}
await check('e2b sandbox connect', async () => {
  const r = await terminal(['sandbox', 'connect', id],
    'echo $((40+2)); exit\n')
  assert.ok(r.missing || /42/.test(r.out), r.out)
})
await check('e2b sandbox create in a terminal', async () => {
  const r = await terminal(['sandbox', 'create', 'base'],
    'echo $((50+3)); exit\n')
  assert.ok(r.missing || /53/.test(r.out), r.out)
})
await check('e2b sandbox kill', async () => {
  const r = await cli(['sandbox', 'kill', id])
  assert.equal(r.code, 0, r.all)
  await rejects(Sandbox.getInfo(id), 'SandboxNotFoundError')
})
await check('e2b sandbox kill --all', async () => {
  const r = await cli(['sandbox', 'kill', '--all'])
  assert.equal(r.code, 0, r.all)
  assert.equal(await sbx.isRunning(), false)
})

console.log(`${passed} passed, ${failed} failed`)
process.exit(failed ? 1 : 0)
