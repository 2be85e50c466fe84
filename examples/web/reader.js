// What the page needs of icechunk and zarrita, in one file: see package.json, script "files".
export { Repository } from '@earthmover/icechunk'
export { createFetchStorage } from '@earthmover/icechunk/fetch-storage'
export { createHttpVirtualChunkFetcher } from '@earthmover/icechunk/http-virtual-chunks'
export { get, open, root } from 'zarrita'
