"""Turn a path or URL into something to read; the only place that handles secrets.

Entry points: `stores.bucket_of(url, config, credentials)` makes a `Bucket`; `Bucket.store()` is its
obstore store in this process; `library.obstore()` is the library with its functions;
`library.asked(url, act)` calls one and converts its errors to icevirt's; and
`urls.Address.parse` splits the URL of an object into bucket and key.
"""
