"""A process that owns a store and whose chunks belong to tenants, 8 of 100,000 bytes each.

	kvtier_owner.py PACKAGE CONFIG TENANT...

CONFIG is JSON; a tenant may be there already. Says "ready", then answers each line of standard input:
"hits TENANT" by how many chunks there are, "ends TENANT" by how many of them have ends, "put_ends TENANT"
stores these, "lease TENANT" and "check" hold chunks of a tenant and compare them.
"""

import hashlib
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from rig.kvtier_chunks import chunks_of, of_tenant, store  # noqa: E402

CHUNKS, SIZE = 8, 100_000


def key_of(tenant, index):
    return of_tenant(hashlib.sha256(f"{tenant} {index}".encode()).digest(), tenant)


def data_of(tenant, index):
    return hashlib.sha256(key_of(tenant, index)).digest() * (SIZE // 32)


class Owner:
    def __init__(self, config):
        from kvtier import library

        self.library = library
        self.cache = library.Cache([config])
        assert not self.cache.mistakes, self.cache.mistakes
        self.lease = None

    def put(self, tenant):
        self.put_all(tenant, [(key_of(tenant, index), data_of(tenant, index)) for index in range(CHUNKS)])

    def put_ends(self, tenant):
        """Of all chunks."""
        keys = [self.cache.ends_key(key_of(tenant, index)) for index in range(CHUNKS)]
        self.put_all(tenant, [(key, key * (SIZE // 32)) for key in keys])
        return self.ends(tenant)

    def put_all(self, tenant, chunks):
        library = self.library
        for key, data in chunks:
            store(library, self.cache, key, data, tenant=library.tenant_of(tenant))
        assert self.cache.lib.kvt_drain(self.cache.handle, 10**10) == library.OK

    def hits(self, tenant):
        return sum(self.cache.lookup([key_of(tenant, index)])[0] for index in range(CHUNKS))

    def ends(self, tenant):
        return sum(self.cache.lookup([self.cache.ends_key(key_of(tenant, n))])[0] for n in range(CHUNKS))

    def hold(self, tenant):
        op = self.cache.get_begin([key_of(tenant, index) for index in range(CHUNKS)], 10**10, 1)
        while not self.cache.poll():
            pass
        self.lease, self.held = self.cache.take(op), tenant
        return self.lease.contents.count

    def check(self):
        for index, (_, data) in enumerate(chunks_of(self.lease)):
            assert data == data_of(self.held, index)
        self.cache.release(self.lease)
        return "right"


def main(package, config, *tenants):
    sys.path.insert(0, package)
    owner = Owner(config)
    for tenant in tenants:
        owner.put(tenant)
    print("ready", flush=True)
    for line in sys.stdin:
        verb, *rest = line.split()
        verbs = {"hits": owner.hits, "ends": owner.ends, "put_ends": owner.put_ends, "lease": owner.hold, "check": owner.check}
        print(verbs[verb](*rest), flush=True)
    owner.cache.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
