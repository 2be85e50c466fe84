"""From a path or URL that a person typed to something to read; the one place of secrets.

What others use: `stores.bucket_of(url, config, credentials)` makes a `Bucket`; `Bucket.store()` is
its obstore store in this process, `library.obstore()` the library with its functions,
`failures.asked(url, act)` calls one and turns its errors into ours, and `address.Address.parse`
splits the URL of an object into bucket and key.
"""
