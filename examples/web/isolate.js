// A service worker that makes this page cross-origin isolated where its server does not send the
// two headers itself. Only then browsers give shared memory to WebAssembly.
self.addEventListener('install', () => self.skipWaiting())
self.addEventListener('activate', (event) => event.waitUntil(self.clients.claim()))
self.addEventListener('fetch', (event) => {
  const { mode, destination, url } = event.request
  const isOurs = new URL(url).origin === self.location.origin
  if (isOurs && (mode === 'navigate' || destination === 'worker')) event.respondWith(isolated(event.request))
})

async function isolated(request) {
  const response = await fetch(request)
  if (response.type === 'opaqueredirect') return response
  const headers = new Headers(response.headers)
  headers.set('Cross-Origin-Opener-Policy', 'same-origin')
  headers.set('Cross-Origin-Embedder-Policy', 'require-corp')
  return new Response(response.body, { status: response.status, statusText: response.statusText, headers })
}
