// Draw a map of one step of a variable of an Icechunk repository: index.html?repo=URL&authorize=PREFIX

const COLORS = ['#440154', '#3b528b', '#21918c', '#5ec962', '#fde725'] // of viridis
const element = (id) => document.getElementById(id)

function say(text, isError = false) {
  element('said').textContent = text
  element('said').className = isError ? 'error' : ''
}

// --- open ------------------------------------------------------------------------------------

/** Reload this page behind the service worker, unless it is isolated already. */
async function isolate() {
  if (crossOriginIsolated) return sessionStorage.removeItem('isolating')
  const remedy = 'Let its server send Cross-Origin-Opener-Policy: same-origin and Cross-Origin-Embedder-Policy: require-corp.'
  if (!isSecureContext) throw new Error('Browsers give shared memory to pages under https or at localhost only. Serve this page there.')
  if (!navigator.serviceWorker || sessionStorage.getItem('isolating')) throw new Error(`This page is not cross-origin isolated. ${remedy}`)
  sessionStorage.setItem('isolating', 'yes')
  await navigator.serviceWorker.register('isolate.js')
  await navigator.serviceWorker.ready
  location.reload()
  await new Promise(() => {})
}

/** Return the libraries that `npm run files` puts beside this file. */
async function libraries() {
  try {
    return await import('./lib/reader.js')
  } catch (error) {
    throw new Error(`lib/reader.js cannot be loaded. Run "npm ci --force && npm run files" in the directory of this page.`, { cause: error })
  }
}

async function opened(lib, url, prefixes, branch) {
  const access = Object.fromEntries(prefixes.map((prefix) => [prefix, { type: 'HttpAccess' }]))
  const repo = await lib.Repository.open(lib.createFetchStorage(url), undefined, access)
  await repo.setHttpVirtualChunkFetcher(lib.createHttpVirtualChunkFetcher())
  const session = await repo.readonlySession({ branch })
  return session.store
}

/** Return the metadata of all arrays by path; groups are walked. */
async function arraysBelow(store, path = '') {
  const found = new Map()
  for (const entry of await store.listDir(path)) {
    const name = entry.replace(/\/$/, '')
    const below = path ? `${path}/${name}` : name
    const bytes = name === 'zarr.json' ? null : await store.get(`${below}/zarr.json`)
    if (!bytes) continue
    const metadata = JSON.parse(new TextDecoder().decode(bytes))
    if (metadata.node_type === 'array') found.set(below, metadata)
    else for (const each of await arraysBelow(store, below)) found.set(...each)
  }
  return found
}

const isNumber = ({ data_type: type }) => /^(u?int|float)\d+$/.test(type)
const isMap = (metadata) => isNumber(metadata) && metadata.shape.length >= 2 && metadata.shape.slice(-2).every((size) => size > 1)

// --- values ----------------------------------------------------------------------------------

/** Return an attribute that stands for "missing" as a number; Zarr writes those of floats as base64. */
function missing(value, type) {
  let number = Number(value)
  if (typeof value === 'string' && !/^-?(NaN|Infinity)$/.test(value)) {
    const { buffer } = Uint8Array.from(atob(value), (letter) => letter.charCodeAt(0))
    number = buffer.byteLength === 4 ? new DataView(buffer).getFloat32(0, true) : new DataView(buffer).getFloat64(0, true)
  }
  return type === 'float32' ? Math.fround(number) : number
}

/** Return raw numbers as what they mean: NaN where missing, scale_factor and add_offset applied. */
function decoded(raw, { attributes = {}, data_type: type }) {
  const gaps = ['_FillValue', 'missing_value']
    .flatMap((name) => attributes[name] ?? [])
    .map((value) => missing(value, type))
  const { scale_factor: scale = 1, add_offset: offset = 0 } = attributes
  return Float64Array.from(raw, (each) => {
    const value = Number(each)
    return gaps.includes(value) ? NaN : value * scale + offset
  })
}

async function valuesOf(lib, store, path, metadata, selection = null) {
  const array = await lib.open.v3(lib.root(store).resolve(`/${path}`), { kind: 'array' })
  const { data, shape } = await lib.get(array, selection)
  return { values: decoded(data, metadata), shape }
}

/** Return the coordinate of a dimension of an array, or null. */
async function coordinate(lib, store, arrays, path, name) {
  const folder = path.includes('/') ? path.slice(0, path.lastIndexOf('/') + 1) : ''
  const metadata = arrays.get(folder + name)
  if (!metadata || metadata.shape.length !== 1 || !isNumber(metadata)) return null
  const { values } = await valuesOf(lib, store, folder + name, metadata)
  return { values, units: metadata.attributes?.units ?? '' }
}

/** Say what a step of a coordinate is; of plain calendars, its date. */
function labelOf(found, step) {
  if (!found) return ''
  const value = found.values[step]
  const [, unit, since] = /^(days|hours|minutes|seconds) since (\S+(?: \S+)?)/.exec(found.units) ?? []
  const second = { days: 86400, hours: 3600, minutes: 60, seconds: 1 }[unit]
  const start = Date.parse(since?.replace(' ', 'T').replace(/(T\d+:\d+:\d+(\.\d+)?)?$/, (time) => `${time || 'T00:00:00'}Z`))
  if (Number.isFinite(start)) return new Date(start + value * second * 1000).toISOString().slice(0, 16)
  return `${value} ${found.units}`
}

// --- drawing ---------------------------------------------------------------------------------

/** Return red, green, blue for a number from 0 to 1. */
function color(part) {
  const at = Math.min(Math.max(part, 0), 1) * (COLORS.length - 1)
  const [low, high] = [Math.floor(at), Math.ceil(at)].map((number) => parseInt(COLORS[number].slice(1), 16))
  return [16, 8, 0].map((shift) => {
    const [from, to] = [(low >> shift) & 255, (high >> shift) & 255]
    return Math.round(from + (to - from) * (at % 1))
  })
}

function paint(canvas, height, width, partOf) {
  canvas.width = width
  canvas.height = height
  const image = new ImageData(width, height)
  for (let row = 0; row < height; row++)
    for (let column = 0; column < width; column++) {
      const part = partOf(row, column)
      if (!Number.isNaN(part)) image.data.set([...color(part), 255], 4 * (row * width + column))
    }
  canvas.getContext('2d').putImageData(image, 0, 0)
}

function draw(values, [height, width], isUpward, title) {
  let [low, high] = [Infinity, -Infinity]
  for (const value of values)
    if (Number.isFinite(value)) [low, high] = [Math.min(low, value), Math.max(high, value)]
  const span = high - low || 1
  paint(element('map'), height, width, (row, column) => (values[(isUpward ? height - 1 - row : row) * width + column] - low) / span)
  paint(element('bar'), 1, 256, (_, column) => column / 255)
  const shown = (value) => (Number.isFinite(value) ? value.toPrecision(5) : 'no value')
  element('low').textContent = shown(low)
  element('high').textContent = shown(high)
  element('name').textContent = title
  element('map').setAttribute('aria-label', `${title}: ${shown(low)} to ${shown(high)}`)
  document.querySelector('figure').className = 'drawn'
}

// --- the page --------------------------------------------------------------------------------

async function main() {
  const given = new URLSearchParams(location.search)
  for (const name of ['repo', 'authorize', 'branch']) if (given.get(name)) element(name).value = given.get(name)
  if (!given.get('repo')) return say('Name a repository, and the prefix below which its files lie.')
  say('Opening ...')
  await isolate()
  const lib = await libraries()
  const store = await opened(lib, given.get('repo'), given.getAll('authorize'), given.get('branch') || 'main')
  const arrays = await arraysBelow(store)
  const maps = [...arrays].filter(([, metadata]) => isMap(metadata)).map(([path]) => path)
  if (!maps.length) return say('The repository has no array of numbers with two dimensions or more.', true)
  const variable = document.createElement('select')
  variable.id = 'variable'
  variable.append(...maps.map((path) => new Option(path)))
  const wanted = given.get('variable')
  if (maps.includes(wanted)) variable.value = wanted
  variable.onchange = () => chosen(lib, store, arrays, variable).catch(failed)
  await chosen(lib, store, arrays, variable, Number(given.get('step') ?? 0))
}

/** Offer the steps of a variable, and draw the first. */
async function chosen(lib, store, arrays, variable, first = 0) {
  const path = variable.value
  const metadata = arrays.get(path)
  const { shape, dimension_names: names = [] } = metadata
  const coordinates = await Promise.all(shape.map((_, at) => (names[at] ? coordinate(lib, store, arrays, path, names[at]) : null)))
  const rows = [row('Variable', variable)]
  const sliders = shape.slice(0, -2).map((size, at) => {
    const slider = Object.assign(document.createElement('input'), { type: 'range', min: 0, max: size - 1, value: at ? 0 : Math.min(first, size - 1) })
    slider.id = `step${at}`
    slider.onchange = () => show().catch(failed)
    slider.oninput = () => tell(at)
    const line = Object.assign(document.createElement('div'), { className: 'step' })
    line.append(slider, document.createElement('output'))
    rows.push(row(names[at] ?? `dimension ${at}`, slider, line))
    return slider
  })
  const tell = (at) => {
    sliders[at].nextSibling.textContent = `${sliders[at].value}  ${labelOf(coordinates[at], sliders[at].value)}`
  }
  sliders.forEach((_, at) => tell(at))
  element('choice').replaceChildren(...rows.flat())
  let latest = 0
  async function show() {
    const mine = ++latest
    const steps = sliders.map((slider) => Number(slider.value))
    say('Reading ...')
    const { values, shape: size } = await valuesOf(lib, store, path, metadata, [...steps, null, null])
    if (mine !== latest) return // another step was chosen meanwhile
    const y = coordinates.at(-2)?.values
    draw(values, size, Boolean(y) && y[0] < y[y.length - 1], `${path} ${metadata.attributes?.units ?? ''}`)
    window.drawn = { variable: path, steps, shape: size, values }
    say('')
    document.body.dataset.state = 'drawn'
  }
  document.body.dataset.state = 'reading'
  await show()
}

function row(title, input, line = input) {
  const label = document.createElement('label')
  label.htmlFor = input.id
  label.textContent = title
  return [label, line]
}

function failed(error) {
  const [repo, prefix] = [element('repo').value, element('authorize').value]
  const what = error.message.split(/\s*context:/)[0]
  const servers = `If a server is the cause: what ${repo} and ${prefix} must send is listed in docs/web-page.md of icevirt.`
  say([what, servers].join('\n'), true)
  document.body.dataset.state = 'failed'
  console.error(error)
}

main().catch(failed)
