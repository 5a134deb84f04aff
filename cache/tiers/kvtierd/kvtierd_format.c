/*
 * kvtierd_format.c - makes the names, marks and request heads that this tier sends to the daemon.
 */
#include "tiers/kvtierd/kvtierd_format.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tiers/bytes.h"

/* --- marks ------------------------------------------------------------------------------------ */

void kvtierd_mark_encode(const struct kvtierd_mark *m, uint8_t out[KVTIERD_MARK])
{
	memset(out, 0, KVTIERD_MARK);
	memcpy(out, "kvtmark1", 8);
	kvt_put32(out + 8, 3);
	memcpy(out + 32, m->fingerprint.bytes, sizeof(m->fingerprint.bytes));
	memcpy(out + 64, m->key.bytes, sizeof(m->key.bytes));
	kvt_put64(out + 96, m->value);
	kvt_put64(out + 104, (uint64_t)m->written_wall_ns);
	kvt_bytes_stamp(out, KVTIERD_MARK, 0);
}

/* --- names ------------------------------------------------------------------------------------ */

void kvtierd_chunk_name(
	const struct kvt_fingerprint *f, const struct kvt_key *key, char out[KVTIERD_NAME_ROOM])
{
	char *at = kvt_bytes_put_hex(out, key->bytes, sizeof(key->bytes));

	*at++ = '-';
	(void)kvt_bytes_put_hex(at, f->bytes, 16);
}

static bool stands_for_itself(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '-' || c == '_' || c == '~' || c == '.';
}

enum kvt_status kvtierd_place_init(
	struct kvtierd_place *p, const char *bucket, const char *host, uint16_t port)
{
	bool address6 = strchr(host, ':') != NULL;
	char *to = p->bucket;

	if (bucket[0] == '\0' || strlen(bucket) > KVTIERD_MAX_BUCKET || strcmp(bucket, ".") == 0 ||
		strcmp(bucket, "..") == 0)
		return KVT_EINVAL;
	for (const char *c = bucket; *c != '\0'; c++)
		to += stands_for_itself(*c) ? sprintf(to, "%c", *c)
					    : sprintf(to, "%%%02X", (unsigned)(uint8_t)*c);
	(void)snprintf(p->host, sizeof(p->host), "%s%s%s:%u", address6 ? "[" : "", host,
		address6 ? "]" : "", port);
	return KVT_OK;
}

/* --- requests --------------------------------------------------------------------------------- */

/* The buffer has KVTIERD_REQUEST_ROOM bytes, enough for a head with the longest possible names. */
static void write_head(const struct kvtierd_place *p, const char *method, const char *target,
	uint64_t length, const char *more, struct kvtierd_exchange *x)
{
	int n = snprintf(x->head, sizeof(x->head),
		"%s %s HTTP/1.1\r\n"
		"Host: %s\r\n"
		"User-Agent: kvtier/%s\r\n"
		"Accept: */*\r\n"
		"Content-Length: %" PRIu64 "\r\n"
		"Content-Type: application/octet-stream\r\n%s\r\n",
		method, target, p->host, kvt_version(), length, more);

	x->head_len = (size_t)n;
}

void kvtierd_ask_lease(const struct kvtierd_place *p, const char *name, uint64_t timeout_ns,
	uint64_t ttl_ns, struct kvtierd_exchange *x)
{
	char target[640];

	(void)snprintf(target, sizeof(target),
		"/v1/kv/%s/%s/leases?timeout_ms=%" PRIu64 "&ttl_s=%" PRIu64 ".%03" PRIu64
		/* asks the daemon not to check the object: the tier checks the bytes after the
		 * copy. Daemons other than kvtierd ignore this option */
		"&check=0",
		p->bucket, name, timeout_ns / 1000000, ttl_ns / 1000000000,
		ttl_ns / 1000000 % 1000);
	x->kind = KVTIERD_LEASE;
	write_head(p, "POST", target, 0, "", x);
}

void kvtierd_ask_release(const struct kvtierd_place *p, const char *id, struct kvtierd_exchange *x)
{
	char target[640];

	(void)snprintf(target, sizeof(target), "/v1/leases/%s/release", id);
	x->kind = KVTIERD_SHORT;
	write_head(p, "POST", target, 0, "", x);
}

void kvtierd_ask_put(const struct kvtierd_place *p, const char *name,
	const struct kvt_tenant *tenant, struct kvtierd_exchange *x)
{
	static const struct kvt_tenant none;
	char target[640], more[64] = "", hex[2 * sizeof(tenant->bytes) + 1];

	if (tenant != NULL && memcmp(tenant, &none, sizeof(none)) != 0) {
		(void)kvt_bytes_put_hex(hex, tenant->bytes, sizeof(tenant->bytes));
		(void)snprintf(more, sizeof(more), "X-Kvtier-Tenant: %s\r\n", hex);
	}
	(void)snprintf(target, sizeof(target), "/v1/kv/%s/%s", p->bucket, name);
	x->kind = KVTIERD_PUT;
	write_head(p, "PUT", target, x->segment_bytes + x->tail_bytes, more, x);
}

void kvtierd_ask_delete(const struct kvtierd_place *p, const char *name, struct kvtierd_exchange *x)
{
	char target[640];

	(void)snprintf(target, sizeof(target), "/v1/kv/%s/%s", p->bucket, name);
	x->kind = KVTIERD_SHORT;
	write_head(p, "DELETE", target, 0, "", x);
}

void kvtierd_ask_table(
	const struct kvtierd_place *p, const struct kvt_table_ask *ask, struct kvtierd_exchange *x)
{
	char target[256], id[2 * KVT_TABLE_ID_BYTES + 1], hex[2 * sizeof(ask->tenant->bytes) + 1] = "", slot[24] = "";
	bool raise = ask->raise != KVT_SLOT_NONE;

	(void)kvt_bytes_put_hex(id, ask->id, sizeof(ask->id));
	if (raise)
		(void)snprintf(slot, sizeof(slot), "&slot=%" PRIu32, ask->raise);
	if (raise && ask->tenant != NULL)
		(void)kvt_bytes_put_hex(hex, ask->tenant->bytes, sizeof(ask->tenant->bytes));
	(void)snprintf(target, sizeof(target), "/v1/generations?id=%s&after=%" PRIu64 "%s%s%s", id, ask->after, slot,
		hex[0] != '\0' ? "&tenant=" : "", hex);
	x->kind = KVTIERD_SHORT;
	write_head(p, raise ? "POST" : "GET", target, 0, "", x);
}
