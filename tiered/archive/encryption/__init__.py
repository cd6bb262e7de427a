"""Archives that are encrypted before their bytes leave the process (DESIGN.md, "Encryption").

Owns: data keys and how they are wrapped, where the wrapped ones lie in the bucket, the provider that encrypts what is put and
decrypts what is read. Does not own: the bytes of ciphertext (``codec/format/encryption.py``), what any object means.
Invariant: everybody above sees plain objects at their plain places, or an error; no key is in a log, an error or a ``repr``.
Threads: any.
"""
