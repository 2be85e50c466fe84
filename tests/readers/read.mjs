// Read every array of an Icechunk repository over HTTP, and print JSON: values, or why not.
// node read.mjs URL-of-the-repository PREFIX-of-virtual-chunks NAME...
import { Repository } from '@earthmover/icechunk'
import { createFetchStorage } from '@earthmover/icechunk/fetch-storage'
import { createHttpVirtualChunkFetcher } from '@earthmover/icechunk/http-virtual-chunks'
import * as zarr from 'zarrita'

const [url, prefix, ...names] = process.argv.slice(2)
const repo = await Repository.open(createFetchStorage(url), undefined, { [prefix]: { type: 'HttpAccess' } })
await repo.setHttpVirtualChunkFetcher(createHttpVirtualChunkFetcher())
const session = await repo.readonlySession({ branch: 'main' })
const root = zarr.root(session.store)

function why(error) {
  for (; error.cause instanceof Error; error = error.cause);
  return { error: error.message }
}

async function read(name) {
  try {
    const array = await zarr.open.v3(root.resolve(`/${name}`), { kind: 'array' })
    const found = await zarr.get(array)
    if (typeof found !== 'object' || !('data' in found)) return { dtype: array.dtype, shape: [], list: [String(found)] }
    const { data, shape } = found
    if (ArrayBuffer.isView(data)) {
      const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength)
      return { dtype: array.dtype, shape, bytes: bytes.toString('base64') }
    }
    return { dtype: array.dtype, shape, list: Array.from(data, String) }
  } catch (error) {
    return why(error)
  }
}

const found = {}
for (const name of names) found[name] = await read(name)
console.log(JSON.stringify(found))
process.exit(0)
