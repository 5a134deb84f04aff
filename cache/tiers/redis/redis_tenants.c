/*
 * redis_tenants.c - epochs, which make old values unreadable at once, and wrapped keys of tenants.
 *
 * For each fingerprint and for each tenant of it Redis keeps a number, its epoch. A value carries
 * both as they were when it was written, and is unreadable as soon as one of them is another. So
 * erasing a tenant, or all, is one command, however many values there are; the values themselves
 * leave later. Equal counts, not less or greater: an epoch that was lost (evicted, flushed) is
 * replaced by a random number, and what was written under the lost one stays unreadable.
 *
 *	made    SET NX of a random number below 2^36, by the first that writes
 *	raised  INCRBY of a random number from 2^36 on; should the client send it twice, it is raised
 *	        twice. A server that is full refuses that: then the epoch is unlinked, which has the
 *	        same effect until the next write, and after it.
 *
 * An erase through this handle counts at once; other handles learn of it with their next probe, within a
 * second (REDIS_FRESH_NS) of reading, or by the clock (l2.seen_time, 10 s at most) while they hold chunks of
 * the tenant (redis_looks.c). Until Redis has confirmed it, nothing of the tenant is read or written here,
 * the raising is tried again each second, and flushes fail. A process that ends before that has not erased.
 *
 * Wrapped keys (sealed stores): GET; where there is none, SET NX, then GET again, so that all use
 * the key of the first writer. An erased tenant's is unlinked after its epoch was raised.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "tiers/redis/redis_tier.h"

#define RECENT_NS    10000000000 /* a probe asks for the epochs of tenants that were used since */
#define RECENT_MOST  16
#define ANSWER_BYTES 32

static void advance(struct redis_tenant *e);

/* --- table ------------------------------------------------------------------------------------- */

void redis_tenants_init(struct redis_tier *t)
{
	t->tenants.all = (struct redis_tenant){.t = t, .kind = REDIS_ALL};
}

void redis_tenants_finish(struct redis_tier *t)
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
	if (e->state != TENANT_IDLE || e->raise || e->key_state == KEY_ASKS ||
		e->key_state == KEY_SETS || e->late_up_to == UINT64_MAX)
		return false;
	return redis_parked_on(t, e) == NULL;
}

/* Forgets what was not used lately; all that is idle if that is nothing. */
static void make_room(struct redis_tier *t)
{
	int64_t now = kvt_now(t->s);

	for (int round = 0; round < 2 && t->tenants.count >= REDIS_TENANTS; round++) {
		for (size_t i = 0; i < REDIS_BUCKETS; i++) {
			struct redis_tenant **at = &t->tenants.buckets[i], *e;

			while ((e = *at) != NULL) {
				if ((round == 0 && now - e->used_ns < RECENT_NS) || !is_idle(t, e) ||
					redis_tenant_is_held(e, now)) {
					at = &e->next;
					continue;
				}
				*at = e->next;
				if (t->sealer != NULL)
					kvt_seal_forget_tenant(t->sealer, &e->tenant);
				free(e);
				t->tenants.count--;
			}
		}
	}
}

struct redis_tenant *redis_tenant_find(struct redis_tier *t, const struct kvt_tenant *tenant)
{
	struct redis_tenant *e = *bucket_of(t, tenant);

	while (e != NULL && memcmp(&e->tenant, tenant, sizeof(*tenant)) != 0)
		e = e->next;
	return e;
}

struct redis_tenant *redis_tenant_get(struct redis_tier *t, const struct kvt_tenant *tenant)
{
	struct redis_tenant **bucket = bucket_of(t, tenant), *e = redis_tenant_find(t, tenant);

	if (e != NULL)
		return e;
	if (t->tenants.count >= REDIS_TENANTS)
		make_room(t);
	if (t->tenants.count >= REDIS_TENANTS || (e = calloc(1, sizeof(*e))) == NULL)
		return NULL;
	*e = (struct redis_tenant){
		.next = *bucket, .t = t, .kind = REDIS_TENANT, .tenant = *tenant};
	*bucket = e;
	t->tenants.count++;
	return e;
}

/* --- commands ---------------------------------------------------------------------------------- */

static size_t epoch_name(const struct redis_tenant *e, char out[REDIS_KEY_ROOM])
{
	return redis_epoch_name(
		&e->t->fingerprint, e->kind == REDIS_TENANT ? &e->tenant : NULL, out);
}

/* A verb about this key: GET, UNLINK, INCRBY with a number, SET with a value and NX or XX. */
static bool send(struct redis_tenant *e, const struct redis_word *words, size_t count,
	void (*answered)(struct redis_ask *ask))
{
	struct redis_ask *ask =
		redis_ask_new(e->t, words, count, NULL, 0, KVT_SEAL_WRAPPED_BYTES + ANSWER_BYTES);

	if (ask == NULL)
		return false;
	redis_ask_send(ask, answered, e, kvt_now(e->t->s) + (int64_t)e->t->deadline_ns);
	return true;
}

static void epoch_answered(struct redis_ask *ask);

static void send_epoch(
	struct redis_tenant *e, enum redis_tenant_state state, const char *verb, uint64_t number)
{
	char name[REDIS_KEY_ROOM], text[24];
	size_t len = state == TENANT_FORGETS
			     ? redis_tenant_key_name(&e->t->fingerprint, &e->tenant, name)
			     : epoch_name(e, name);
	int digits = snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
	struct redis_word words[4] = {
		{verb, strlen(verb)}, {name, len}, {text, (size_t)digits}, REDIS_WORD("NX")};
	size_t count = number == 0 ? 2 : state == TENANT_CREATES ? 4 : 3;

	e->state = state;
	if (state == TENANT_RAISES)
		e->raise_by = number;
	if (!send(e, words, count, epoch_answered)) {
		e->state = TENANT_IDLE;
		e->failed = true;
		e->failed_ns = kvt_now(e->t->s);
		e->failure = KVT_ENOMEM;
	}
}

/* --- epochs ------------------------------------------------------------------------------------ */

static void forget_key(struct redis_tenant *e)
{
	if (e->t->sealer == NULL || e->kind != REDIS_TENANT)
		return;
	kvt_seal_forget_tenant(e->t->sealer, &e->tenant);
	if (e->key_state == KEY_KNOWN)
		e->key_state = KEY_NONE;
}

static void learned(struct redis_tenant *e, uint64_t epoch, int64_t asked_ns)
{
	if (e->known && e->epoch != epoch) {
		forget_key(e);
		redis_shares_forget(e->t, e->kind == REDIS_TENANT ? &e->tenant : NULL);
		e->left_over = e->left_over || e->epoch != 0;
		if (epoch != 0 && e->left_over && e->t->quota.bytes != 0) {
			e->left_over = false;
			redis_clean_want(e->t); /* only now: until there is another epoch no value is over */
		}
		kvt_presence_forget_tenant(
			e->t->presence, e->kind == REDIS_TENANT ? &e->tenant : NULL);
	}
	e->epoch = epoch;
	e->known_ns = asked_ns;
	e->known = true;
	e->failed = false;
	e->create = e->create && epoch == 0;
}

static void failed(struct redis_tenant *e, enum kvt_status status)
{
	int64_t now = kvt_now(e->t->s);

	e->failed = true;
	e->failed_ns = now;
	e->failure = status == KVT_ECORRUPT ? KVT_EIO : status;
	if (!e->raise)
		return;
	if (!e->raise_failed)
		kvt_note(e->t->s, KVT_LOG_WARN,
			"redis: an erase has not reached the server: trying again");
	e->raise_failed = true;
	e->again_ns = now + REDIS_RETRY_NS;
}

static void raised(struct redis_tenant *e)
{
	if (e->raise_failed)
		kvt_note(e->t->s, KVT_LOG_INFO, "redis: the erase has reached the server");
	e->raise = e->raise_again;
	e->raise_again = e->raise_failed = false;
	forget_key(e);
	if (!e->raise)
		e->t->tenants.owing--;
	redis_clean_want(e->t);
}

/* A decimal number from 1 on, else 0. */
static uint64_t number_of(const struct redis_ask *ask)
{
	uint64_t value = 0, len = ask->command.bulk_bytes;

	if (len == 0 || len > 19)
		return 0;
	for (uint64_t i = 0; i < len; i++) {
		if (ask->buffer[i] < '0' || ask->buffer[i] > '9')
			return 0;
		value = value * 10 + (uint64_t)(ask->buffer[i] - '0');
	}
	return value;
}

static void asked(struct redis_tenant *e, const struct redis_ask *ask, enum kvt_status status)
{
	uint64_t number;

	if (status == KVT_OK && ask->command.reply == KVW_REDIS_NIL) {
		learned(e, 0, ask->sent_ns);
		return;
	}
	if (status == KVT_OK && ask->command.reply == KVW_REDIS_BULK) {
		number = number_of(ask);
		if (number != 0) {
			redis_heed(e, number, ask->sent_ns);
			learned(e, number, ask->sent_ns);
			return;
		}
		status = KVT_ECORRUPT;
	}
	if (status == KVT_ECORRUPT)
		send_epoch(e, TENANT_REMOVES, "UNLINK", 0); /* what lies there is no epoch */
	else
		failed(e, status == KVT_OK ? KVT_EIO : status);
}

/* Cannot be raised as it is: a server that is full, or something else under its name. */
static bool must_be_removed(const struct redis_ask *ask, enum kvt_status status)
{
	const char *text = ask->command.text;

	if (ask->command.status != KVW_OK || ask->command.reply != KVW_REDIS_ERROR)
		return false;
	return status == KVT_ECORRUPT || strncmp(text, "OOM ", 4) == 0 || strncmp(text, "ERR value", 9) == 0 ||
	       strncmp(text, "ERR increment", 13) == 0;
}

static void was_raised(struct redis_tenant *e, const struct redis_ask *ask, enum kvt_status status)
{
	if (status == KVT_OK && ask->command.reply == KVW_REDIS_INTEGER) {
		redis_heed_raised(e, (uint64_t)ask->command.integer);
		learned(e, (uint64_t)ask->command.integer, ask->sent_ns);
		e->made = e->epoch;
		if (e->t->sealer != NULL && e->kind == REDIS_TENANT)
			send_epoch(e, TENANT_FORGETS, "UNLINK", 0);
		else
			raised(e);
	} else if (must_be_removed(ask, status)) {
		send_epoch(e, TENANT_REMOVES, "UNLINK", 0);
	} else {
		failed(e, status == KVT_OK ? KVT_EIO : status);
	}
}

static void was_removed(struct redis_tenant *e, const struct redis_ask *ask, enum kvt_status status)
{
	if (status != KVT_OK) {
		failed(e, status);
		return;
	}
	learned(e, 0, ask->sent_ns);
	if (e->raise && e->t->sealer != NULL && e->kind == REDIS_TENANT)
		send_epoch(e, TENANT_FORGETS, "UNLINK", 0);
	else if (e->raise)
		raised(e);
}

static void epoch_answered(struct redis_ask *ask)
{
	struct redis_tenant *e = ask->owner;
	enum redis_tenant_state was = e->state;
	enum kvt_status status = redis_ask_status(ask);

	e->state = TENANT_IDLE;
	if (e->by_clock) {
		e->by_clock = false;
		e->t->tenants.looks--;
		e->t->tenants.look_failed = status != KVT_OK;
	}
	switch (was) {
	case TENANT_ASKS:
		asked(e, ask, status);
		break;
	case TENANT_CREATES: /* whether it was this one or another's: it is asked for again */
		e->create = false;
		if (status != KVT_OK)
			failed(e, status);
		else
			send_epoch(e, TENANT_ASKS, "GET", 0);
		break;
	case TENANT_RAISES:
		was_raised(e, ask, status);
		break;
	case TENANT_REMOVES:
		was_removed(e, ask, status);
		break;
	case TENANT_FORGETS:
		if (status == KVT_OK)
			raised(e);
		else
			failed(e, status);
		break;
	case TENANT_IDLE:
		break;
	}
	redis_ask_free(ask);
	advance(e);
	redis_resume(e->t, e);
}

void redis_tenant_ask(struct redis_tenant *e)
{
	send_epoch(e, TENANT_ASKS, "GET", 0);
}

/* What is done without being asked again: raising, and making an epoch for a writer. */
static void advance(struct redis_tenant *e)
{
	if (e->state != TENANT_IDLE || e->t->closing)
		return;
	if (e->raise) {
		if (!e->raise_failed || kvt_now(e->t->s) >= e->again_ns)
			send_epoch(e, TENANT_RAISES, "INCRBY",
				REDIS_RAISED_FROM + kvw_random(&e->t->seed) % REDIS_RAISED_FROM);
	} else if (e->create && e->known && !e->failed && e->epoch == 0) {
		e->made = 1 + kvw_random(&e->t->seed) % (REDIS_RAISED_FROM - 1);
		send_epoch(e, TENANT_CREATES, "SET", e->made);
	}
}

/* Asks Redis, unless that is under way. */
static void ask_again(struct redis_tenant *e)
{
	advance(e);
	if (e->state == TENANT_IDLE && !e->raise)
		send_epoch(e, TENANT_ASKS, "GET", 0);
}

void redis_tenant_raise(struct redis_tenant *e)
{
	if (e->state == TENANT_RAISES || e->state == TENANT_REMOVES || e->state == TENANT_FORGETS)
		e->raise_again = true;
	if (!e->raise)
		e->t->tenants.owing++;
	e->raise = true;
	forget_key(e);
	advance(e);
}

static bool is_fresh(const struct redis_tenant *e, const struct redis_job *job, bool create)
{
	return e->known && !e->failed && !e->raise && e->known_ns >= job->fresh_ns &&
	       (!create || e->epoch != 0);
}

/* KVT_OK, KVT_BUSY: it is on its way, or why it cannot be had. */
static enum kvt_status look_at(struct redis_tenant *e, const struct redis_job *job, bool create)
{
	int64_t now = kvt_now(e->t->s);

	e->used_ns = now;
	if (is_fresh(e, job, create))
		return KVT_OK;
	if (e->state == TENANT_IDLE && e->failed && e->failed_ns >= job->begun_ns)
		return e->failure;
	if (e->raise && e->raise_failed && e->state == TENANT_IDLE && now < e->again_ns)
		return KVT_EIO;
	e->create = e->create || create;
	if (e->state == TENANT_IDLE) {
		ask_again(e);
		if (e->state == TENANT_IDLE)
			return e->failed ? e->failure : KVT_EIO;
	}
	return KVT_BUSY;
}

enum kvt_status redis_epochs_get(struct redis_job *job, const struct kvt_tenant *tenant,
	bool create, struct redis_epochs *epochs)
{
	struct redis_tier *t = job->t;
	struct redis_tenant *list[2] = {&t->tenants.all, redis_tenant_get(t, tenant)};
	enum kvt_status status[2];

	if (list[1] == NULL)
		return KVT_ENOMEM;
	for (size_t i = 0; i < 2; i++) /* both are asked for before either is waited for */
		status[i] = look_at(list[i], job, create);
	for (size_t i = 0; i < 2; i++) {
		if (status[i] == KVT_OK)
			continue;
		if (status[i] == KVT_BUSY)
			redis_job_park(job, list[i], job->resume);
		return status[i];
	}
	if (create && (redis_is_late(job, list[0]) || redis_is_late(job, list[1])))
		return KVT_MISS; /* erased elsewhere since it was put */
	epochs->all = list[0]->epoch;
	epochs->tenant = list[1]->epoch;
	return KVT_OK;
}

enum kvt_status redis_epochs_doubt(struct redis_job *job)
{
	if (job->fresh_ns >= job->begun_ns)
		return KVT_MISS;
	job->fresh_ns = job->begun_ns;
	return KVT_BUSY;
}

void redis_tenants_refresh(struct redis_tier *t)
{
	int64_t now = kvt_now(t->s);
	unsigned asked_for = 0;

	ask_again(&t->tenants.all);
	for (size_t i = 0; i < REDIS_BUCKETS && asked_for < RECENT_MOST; i++) {
		struct redis_tenant *e = t->tenants.buckets[i];

		for (; e != NULL && asked_for < RECENT_MOST; e = e->next) {
			if (now - e->used_ns >= RECENT_NS)
				continue;
			ask_again(e);
			asked_for++;
		}
	}
}

/* --- erases that are owed ---------------------------------------------------------------------- */

static bool is_raising(const struct redis_tenant *e)
{
	return e->raise && (e->state != TENANT_IDLE || !e->raise_failed);
}

/* Calls each() for all that there are until it says true. */
static bool any(struct redis_tier *t, bool (*each)(const struct redis_tenant *e))
{
	bool found = each(&t->tenants.all);

	for (size_t i = 0; i < REDIS_BUCKETS && !found; i++) {
		const struct redis_tenant *e = t->tenants.buckets[i];

		for (; e != NULL && !found; e = e->next)
			found = each(e);
	}
	return found;
}

bool redis_tenants_raising(struct redis_tier *t)
{
	return t->tenants.owing > 0 && any(t, is_raising);
}

bool redis_tenants_owing(struct redis_tier *t)
{
	return t->tenants.owing > 0;
}

static size_t raise_due(struct redis_tenant *e, int64_t now_ns, int64_t *next_ns)
{
	if (!e->raise || e->state != TENANT_IDLE)
		return 0;
	if (e->raise_failed && now_ns < e->again_ns) {
		if (e->again_ns < *next_ns)
			*next_ns = e->again_ns;
		return 0;
	}
	advance(e);
	return 1;
}

size_t redis_tenants_step(struct redis_tier *t, int64_t now_ns, int64_t *next_ns)
{
	size_t done;

	if (t->tenants.owing == 0)
		return 0;
	done = raise_due(&t->tenants.all, now_ns, next_ns);
	for (size_t i = 0; i < REDIS_BUCKETS; i++) {
		for (struct redis_tenant *e = t->tenants.buckets[i]; e != NULL; e = e->next)
			done += raise_due(e, now_ns, next_ns);
	}
	return done;
}

/* --- keys of tenants --------------------------------------------------------------------------- */

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
	redis_ask_free(ask);
}

/* What lies under its name does not open: the next writer makes another. */
static void remove_key(struct redis_tenant *e)
{
	char name[REDIS_KEY_ROOM];
	size_t len = redis_tenant_key_name(&e->t->fingerprint, &e->tenant, name);
	struct redis_word words[2] = {REDIS_WORD("UNLINK"), {name, len}};

	kvt_note(e->t->s, KVT_LOG_WARN,
		"redis: a tenant's key was damaged: its chunks are lost and it gets another");
	(void)send(e, words, 2, nobody_waits);
}

/* The file of keys has a newer master: the same key in another wrapping, if Redis still has it. */
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

/* The key that all share, or why not. */
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
			e, status == KVT_MISS ? KVT_ENOTSUP : status); /* its master is not here */
	}
}

/* There is none: ours, unless another writer is faster. */
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
	struct redis_tenant *e = redis_tenant_get(job->t, tenant);

	if (e == NULL)
		return KVT_ENOMEM;
	e->used_ns = kvt_now(job->t->s);
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
