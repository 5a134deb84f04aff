/*
 * redis_keys.c - wrapped keys of tenants, for sealed stores.
 *
 * Redis holds a tenant's wrapped key for all handles together. A handle asks with GET; if there is
 * no key, it makes one and sends SET with NX, then GET again, so that all handles use the key of
 * the first writer. A change of a tenant's generation unlinks its key (redis_table.c), and each
 * handle that sees such a change reads the keys again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "tiers/redis/redis_tier.h"

/* a tenant used within this time is forgotten only if there is no other to forget */
#define RECENT_NS    10000000000
#define ANSWER_BYTES 32

/* --- table
 * ------------------------------------------------------------------------------------- */

void redis_keys_finish(struct redis_tier *t)
{
	for (size_t i = 0; i < REDIS_BUCKETS; i++) {
		while (t->tenants.buckets[i] != NULL) {
			struct redis_tenant *e = t->tenants.buckets[i];

			t->tenants.buckets[i] = e->next;
			free(e);
		}
	}
}

static struct redis_tenant **bucket_of(struct redis_tier *t, const struct kvt_tenant *tenant)
{
	uint64_t hash = XXH3_64bits_withSeed(tenant->bytes, sizeof(tenant->bytes), t->hash_seed);

	return &t->tenants.buckets[hash % REDIS_BUCKETS];
}

static bool is_idle(const struct redis_tier *t, const struct redis_tenant *e)
{
	return e->under_way == 0 && redis_parked_on(t, e) == NULL;
}

/* Forgets tenants that were not used lately; if there are none, all tenants without a command under
 * way. */
static void make_room(struct redis_tier *t)
{
	int64_t now = kvt_now(t->s);

	for (int round = 0; round < 2 && t->tenants.count >= REDIS_TENANTS; round++) {
		for (size_t i = 0; i < REDIS_BUCKETS; i++) {
			struct redis_tenant **at = &t->tenants.buckets[i], *e;

			while ((e = *at) != NULL) {
				if ((round == 0 && now - e->used_ns < RECENT_NS) || !is_idle(t, e)) {
					at = &e->next;
					continue;
				}
				*at = e->next;
				kvt_seal_forget_tenant(t->sealer, &e->tenant);
				free(e);
				t->tenants.count--;
			}
		}
	}
}

/* NULL: no memory. */
static struct redis_tenant *tenant_get(struct redis_tier *t, const struct kvt_tenant *tenant)
{
	struct redis_tenant **bucket = bucket_of(t, tenant), *e = *bucket;

	while (e != NULL && memcmp(&e->tenant, tenant, sizeof(*tenant)) != 0)
		e = e->next;
	if (e != NULL)
		return e;
	if (t->tenants.count >= REDIS_TENANTS)
		make_room(t);
	if (t->tenants.count >= REDIS_TENANTS || (e = calloc(1, sizeof(*e))) == NULL)
		return NULL;
	*e = (struct redis_tenant){.next = *bucket, .t = t, .tenant = *tenant};
	*bucket = e;
	t->tenants.count++;
	return e;
}

/* --- keys
 * -------------------------------------------------------------------------------------- */

/* Sends a command about this tenant's key: GET, UNLINK, or SET with a value and NX or XX. */
static bool send(struct redis_tenant *e, const struct redis_word *words, size_t count,
	void (*answered)(struct redis_ask *ask))
{
	struct redis_ask *ask =
		redis_ask_new(e->t, words, count, NULL, 0, KVT_SEAL_WRAPPED_BYTES + ANSWER_BYTES);

	if (ask == NULL)
		return false;
	e->under_way++;
	redis_ask_send(ask, answered, e, kvt_now(e->t->s) + (int64_t)e->t->deadline_ns);
	return true;
}

static void key_answered(struct redis_ask *ask);

static bool send_key(struct redis_tenant *e, enum redis_key_state state, const char *verb,
	const uint8_t *wrapped)
{
	char name[REDIS_KEY_ROOM];
	size_t len = redis_tenant_key_name(&e->t->fingerprint, &e->tenant, name);
	struct redis_word words[4] = {{verb, strlen(verb)}, {name, len},
		{wrapped, KVT_SEAL_WRAPPED_BYTES}, REDIS_WORD("NX")};

	e->key_state = state;
	if (send(e, words, wrapped != NULL ? 4 : 2, key_answered))
		return true;
	e->key_state = KEY_NONE;
	e->key_failure = KVT_ENOMEM;
	e->key_failed_ns = kvt_now(e->t->s);
	return false;
}

static void key_failed(struct redis_tenant *e, enum kvt_status why)
{
	e->key_state = KEY_NONE;
	e->key_failure = why;
	e->key_failed_ns = kvt_now(e->t->s);
}

static void nobody_waits(struct redis_ask *ask)
{
	struct redis_tenant *e = ask->owner;

	e->under_way--;
	redis_ask_free(ask);
}

/* Removes a stored key that cannot be opened: the next writer makes a new one. */
static void remove_key(struct redis_tenant *e)
{
	char name[REDIS_KEY_ROOM];
	size_t len = redis_tenant_key_name(&e->t->fingerprint, &e->tenant, name);
	struct redis_word words[2] = {REDIS_WORD("UNLINK"), {name, len}};

	kvt_note(e->t->s, KVT_LOG_WARN,
		"redis: a tenant's key was damaged: its chunks are lost and it gets another");
	(void)send(e, words, 2, nobody_waits);
}

/* Called when the file of keys has a newer master key: wraps the tenant's key with it and stores
 * that in place of the old wrapping, unless Redis has lost the key meanwhile. */
static void wrap_anew(struct redis_tenant *e)
{
	uint8_t wrapped[KVT_SEAL_WRAPPED_BYTES];
	char name[REDIS_KEY_ROOM];
	size_t len = redis_tenant_key_name(&e->t->fingerprint, &e->tenant, name);
	struct redis_word words[4] = {
		REDIS_WORD("SET"), {name, len}, {wrapped, sizeof(wrapped)}, REDIS_WORD("XX")};
	bool fresh = false;

	if (kvt_seal_tenant_key(e->t->sealer, &e->tenant, wrapped, &fresh) == KVT_OK && fresh)
		(void)send(e, words, 4, nobody_waits);
	explicit_bzero(wrapped, sizeof(wrapped));
}

/* Called when Redis answered: takes the tenant's key from the answer, or notes why there is
 * none. */
static void key_came(struct redis_tenant *e, const struct redis_ask *ask)
{
	uint8_t wrapped[KVT_SEAL_WRAPPED_BYTES];
	enum kvt_status status = KVT_ECORRUPT;

	if (ask->command.bulk_bytes == sizeof(wrapped) &&
		memcmp(ask->buffer + 16, e->tenant.bytes, sizeof(e->tenant.bytes)) == 0) {
		memcpy(wrapped, ask->buffer, sizeof(wrapped));
		status = kvt_seal_take_tenant_key(e->t->sealer, wrapped);
	}
	if (status == KVT_OK) {
		e->key_state = KEY_KNOWN;
		wrap_anew(e);
	} else if (status == KVT_ECORRUPT) {
		remove_key(e);
		key_failed(e, KVT_MISS);
	} else {
		key_failed(
			/* KVT_MISS: this process's file of keys lacks the master key that opens
			 * it */
			e, status == KVT_MISS ? KVT_ENOTSUP : status);
	}
}

/* Makes a key for a tenant that has none. If another writer stores one first, that one counts. */
static void make_key(struct redis_tenant *e)
{
	uint8_t wrapped[KVT_SEAL_WRAPPED_BYTES];
	bool fresh;
	enum kvt_status status = kvt_seal_tenant_key(e->t->sealer, &e->tenant, wrapped, &fresh);

	if (status != KVT_OK)
		key_failed(e, status);
	else
		(void)send_key(e, KEY_SETS, "SET", wrapped);
	explicit_bzero(wrapped, sizeof(wrapped));
}

static void key_answered(struct redis_ask *ask)
{
	struct redis_tenant *e = ask->owner;
	enum kvt_status status = redis_ask_status(ask);
	enum redis_key_state was = e->key_state;

	e->under_way--;
	if (status == KVT_ECORRUPT) {
		remove_key(e);
		key_failed(e, KVT_MISS);
	} else if (status != KVT_OK) {
		key_failed(e, status);
	} else if (was == KEY_SETS) {
		(void)send_key(e, KEY_ASKS, "GET", NULL);
	} else if (ask->command.reply == KVW_REDIS_BULK) {
		key_came(e, ask);
	} else if (e->create_key) {
		e->create_key = false;
		make_key(e);
	} else {
		key_failed(e, KVT_MISS);
	}
	explicit_bzero(ask->buffer, ask->buffer_bytes);
	redis_ask_free(ask);
	redis_resume(e->t, e);
}

enum kvt_status redis_tenant_key(
	struct redis_job *job, const struct kvt_tenant *tenant, bool create, bool again)
{
	struct redis_tenant *e = tenant_get(job->t, tenant);
	uint64_t round = atomic_load(&job->t->key_round);

	if (e == NULL)
		return KVT_ENOMEM;
	e->used_ns = kvt_now(job->t->s);
	if (e->round != round && (e->key_state == KEY_KNOWN || e->key_state == KEY_NONE)) {
		/* the tenant's key may have been destroyed, so the sealer's copy is dropped */
		kvt_seal_forget_tenant(job->t->sealer, tenant);
		e->key_state = KEY_NONE;
		e->round = round;
	}
	if (again && e->key_state == KEY_KNOWN)
		e->key_state = KEY_NONE;
	if (e->key_state == KEY_KNOWN)
		return KVT_OK;
	if (e->key_state == KEY_NONE && !again && e->key_failed_ns >= job->begun_ns &&
		e->key_failure != KVT_OK)
		return e->key_failure;
	e->create_key = e->create_key || create;
	if (e->key_state == KEY_NONE && !send_key(e, KEY_ASKS, "GET", NULL))
		return KVT_ENOMEM;
	redis_job_park(job, e, job->resume);
	return KVT_BUSY;
}
