/*
 * kvtierd_format.c - names, marks and request heads.
 */
#include "tiers/kvtierd/kvtierd_format.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tiers/bytes.h"

/* --- marks ------------------------------------------------------------------------------------ */

static const char magic[8] = "kvtmark1";

void kvtierd_mark_encode(const struct kvtierd_mark *m, uint8_t out[KVTIERD_MARK])
{
	memset(out, 0, KVTIERD_MARK);
	memcpy(out, magic, sizeof(magic));
	kvt_put32(out + 8, m->kind);
	memcpy(out + 32, m->fingerprint.bytes, sizeof(m->fingerprint.bytes));
	if (m->kind == KVTIERD_ERASED)
		memcpy(out + 64, m->key.bytes, sizeof(m->key.bytes));
	else if (m->kind == KVTIERD_EPOCH_TENANT)
		memcpy(out + 64, m->tenant.bytes, sizeof(m->tenant.bytes));
	kvt_put64(out + 96, m->value);
	kvt_put64(out + 104, (uint64_t)m->written_wall_ns);
	kvt_put64(out + 112, m->erase);
	kvt_put64(out + 120, (uint64_t)m->erased_wall_ns);
	kvt_bytes_stamp(out, KVTIERD_MARK, 0);
}

enum kvt_status kvtierd_mark_decode(const uint8_t in[KVTIERD_MARK], struct kvtierd_mark *out)
{
	uint32_t kind = kvt_get32(in + 8);

	if (memcmp(in, magic, sizeof(magic)) != 0 || !kvt_bytes_prove(in, KVTIERD_MARK, 0) ||
		kind < KVTIERD_EPOCH_ALL || kind > KVTIERD_ERASED)
		return KVT_ECORRUPT;
	*out = (struct kvtierd_mark){.kind = (enum kvtierd_mark_kind)kind};
	memcpy(out->fingerprint.bytes, in + 32, sizeof(out->fingerprint.bytes));
	if (kind == KVTIERD_ERASED)
		memcpy(out->key.bytes, in + 64, sizeof(out->key.bytes));
	else if (kind == KVTIERD_EPOCH_TENANT)
		memcpy(out->tenant.bytes, in + 64, sizeof(out->tenant.bytes));
	out->value = kvt_get64(in + 96);
	out->written_wall_ns = (int64_t)kvt_get64(in + 104);
	out->erase = kvt_get64(in + 112);
	out->erased_wall_ns = (int64_t)kvt_get64(in + 120);
	return KVT_OK;
}

/* --- names ------------------------------------------------------------------------------------ */

void kvtierd_chunk_name(
	const struct kvt_fingerprint *f, const struct kvt_key *key, char out[KVTIERD_NAME_ROOM])
{
	char *at = kvt_bytes_put_hex(out, key->bytes, sizeof(key->bytes));

	*at++ = '-';
	(void)kvt_bytes_put_hex(at, f->bytes, 16);
}

void kvtierd_epoch_name(const struct kvt_fingerprint *f, const struct kvt_tenant *tenant,
	char out[KVTIERD_NAME_ROOM])
{
	static const char prefix[] = "epoch-";
	char *at;

	memcpy(out, prefix, sizeof(prefix) - 1);
	at = kvt_bytes_put_hex(out + sizeof(prefix) - 1, f->bytes, 16);
	if (tenant != NULL) {
		*at++ = '-';
		(void)kvt_bytes_put_hex(at, tenant->bytes, sizeof(tenant->bytes));
	}
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

/* Room was measured for the longest names there are: KVTIERD_REQUEST_ROOM. */
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

static void ask_lease(const struct kvtierd_place *p, const char *name, uint64_t timeout_ns,
	uint64_t ttl_ns, const char *more, struct kvtierd_exchange *x)
{
	char target[640];

	(void)snprintf(target, sizeof(target),
		"/v1/kv/%s/%s/leases?timeout_ms=%" PRIu64 "&ttl_s=%" PRIu64 ".%03" PRIu64
		"&check=0%s", /* the bytes are proven after the copy; other daemons do not know it */
		p->bucket, name, timeout_ns / 1000000, ttl_ns / 1000000000,
		ttl_ns / 1000000 % 1000, more);
	x->kind = KVTIERD_LEASE;
	write_head(p, "POST", target, 0, "", x);
}

void kvtierd_ask_lease(const struct kvtierd_place *p, const char *name, uint64_t timeout_ns,
	uint64_t ttl_ns, struct kvtierd_exchange *x)
{
	ask_lease(p, name, timeout_ns, ttl_ns, "", x);
}

void kvtierd_ask_mark_lease(const struct kvtierd_place *p, const char *name, uint64_t timeout_ns,
	uint64_t ttl_ns, struct kvtierd_exchange *x)
{
	ask_lease(p, name, timeout_ns, ttl_ns, "&keep=1", x); /* nor this */
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

void kvtierd_ask_forget(const struct kvtierd_place *p, const struct kvt_fingerprint *f,
	const struct kvt_tenant *tenant, const char *after, struct kvtierd_exchange *x)
{
	char target[704], model[33], hex[2 * sizeof(tenant->bytes) + 1] = "";

	(void)kvt_bytes_put_hex(model, f->bytes, 16);
	if (tenant != NULL)
		(void)kvt_bytes_put_hex(hex, tenant->bytes, sizeof(tenant->bytes));
	(void)snprintf(target, sizeof(target), "/v1/kv/%s?model=%s%s%s%s%s", p->bucket, model,
		tenant != NULL ? "&tenant=" : "", hex, after[0] != '\0' ? "&after=" : "", after);
	x->kind = KVTIERD_SHORT;
	write_head(p, "POST", target, 0, "", x);
}
