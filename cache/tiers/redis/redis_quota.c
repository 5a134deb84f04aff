/*
 * redis_quota.c - limits the bytes of each tenant in Redis (protect.tenant_l2_bytes).
 *
 * Redis keeps an account for each tenant of a fingerprint: a sorted set with an entry for each chunk (its key, bytes
 * and parts; the time when it was written or read) and the sum, as the entry `total`, whose score is minus the sum. All
 * handles that share the tier change the account by one script, which runs atomically. A chunk is entered before it is
 * set. If the account then exceeds the quota, the handle unlinks the oldest other chunks of the tenant and afterwards
 * removes their entries; the chunk is set only when that is enough. So the account never says less than Redis holds:
 *
 *	a handle that ends in between leaves an entry without a chunk, which becomes the oldest one and is removed
 *	Redis evicted a chunk, a key was erased: likewise
 *	an entry that was written again meanwhile (its score shows that) stays
 *	entries of chunks older than their TTL are removed first
 *
 * Chunks erased with their tenant stay in the account, and in Redis, until they are the oldest. An account that Redis
 * evicted begins again, empty: until the tenant's former chunks have left by TTL or eviction, the tenant may have twice
 * its quota.
 *
 * Age of a chunk: a chunk that continues another one written or read within the last minute is older than that one by a
 * microsecond, so that the end of a prompt leaves before its beginning, without which the end is useless. Reading makes
 * a chunk young, at most once a minute. Clocks are the handles' own.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tiers/redis/redis_tier.h"

#define RECENT     4096u /* number of chunks for which the time of their last use is remembered */
/* chunks of one prompt are stored within this time; a read of a chunk counts again after it */
#define RECENT_US  60000000
/* an entry outlives its chunk by this time: RECENT_US, and differences between clocks */
#define SLACK_MS   120000u
#define ROUNDS     64u        /* room for one chunk is made in at most this many rounds */
#define VICTIMS    64u        /* one round unlinks at most this many chunks: LIMIT in the script */
#define ANSWER_MOST (64u << 10)

/* KEYS: the account. ARGV: quota, TTL in ms or 0, the chunk's entry, bytes and score, then removed
 * entries with the scores by which they were chosen. Returns the sum, the number of chunks, and the
 * victims, with scores. */
static const char script[] =
	"local k, total = KEYS[1], 'total'\n"
	"local function bytes(e) return tonumber(string.match(e, '^%d+', 33)) or 0 end\n"
	"local function off(e)\n"
	"  if redis.call('ZREM', k, e) == 1 then redis.call('ZINCRBY', k, bytes(e), total) end\n"
	"end\n"
	"local made = redis.call('EXISTS', k) == 0\n"
	"if made then redis.call('ZADD', k, 0, total) end\n"
	"for i = 6, #ARGV, 2 do\n"
	"  if redis.call('ZSCORE', k, ARGV[i]) == ARGV[i + 1] then off(ARGV[i]) end\n"
	"end\n"
	"if redis.call('ZADD', k, ARGV[5], ARGV[3]) == 1 then\n"
	"  redis.call('ZINCRBY', k, -tonumber(ARGV[4]), total)\n"
	"end\n"
	"local ttl = tonumber(ARGV[2])\n"
	"if ttl == 0 then\n"
	"  redis.call('PERSIST', k)\n"
	"else\n"
	"  local over = '(' .. string.format('%.0f', math.max(0, tonumber(ARGV[5]) - ttl * 1000))\n"
	"  for _, e in ipairs(redis.call('ZRANGEBYSCORE', k, '(0', over, 'LIMIT', 0, 256)) do\n"
	"    if e ~= ARGV[3] then off(e) end\n"
	"  end\n"
	"  local left = redis.call('PTTL', k)\n"
	"  if made or (left >= 0 and left < ttl) then redis.call('PEXPIRE', k, ARGV[2]) end\n"
	"end\n"
	"local sum = -tonumber(redis.call('ZSCORE', k, total))\n"
	"local out = {sum, redis.call('ZCARD', k) - 1}\n"
	"local over = sum - tonumber(ARGV[1])\n"
	"if over > 0 then\n"
	"  local old = redis.call('ZRANGEBYSCORE', k, '(0', '+inf', 'WITHSCORES', 'LIMIT', 0, 64)\n"
	"  for i = 1, #old, 2 do\n"
	"    if over > 0 and old[i] ~= ARGV[3] then\n"
	"      out[#out + 1] = old[i]\n"
	"      out[#out + 1] = old[i + 1]\n"
	"      over = over - bytes(old[i])\n"
	"    end\n"
	"  end\n"
	"end\n"
	"return out\n";

/* A chunk that waits until its tenant has room. */
struct redis_admission {
	void (*admitted)(struct redis_job *job);
	uint64_t bytes;
	struct redis_account_entry own;
	uint32_t victim_count, rounds;
};

/* The time when a chunk was last written or read. */
struct redis_recent {
	struct kvt_key key;
	int64_t at_us;
};

static void account(struct redis_job *job);

enum kvt_status redis_quota_init(struct redis_tier *t, uint64_t bytes)
{
	t->quota.bytes = bytes;
	if (bytes == 0)
		return KVT_OK;
	t->quota.recent = calloc(RECENT, sizeof(*t->quota.recent));
	return t->quota.recent != NULL ? KVT_OK : KVT_ENOMEM;
}

void redis_quota_finish(struct redis_tier *t)
{
	free(t->quota.recent);
}

/* --- age
 * --------------------------------------------------------------------------------------- */

static struct redis_recent *recent_of(struct redis_tier *t, const struct kvt_key *key)
{
	uint32_t hash;

	memcpy(&hash, key->bytes, sizeof(hash));
	return &t->quota.recent[hash % RECENT];
}

/* Returns the time of the chunk's last use; 0: the chunk was not used within the last minute. */
static int64_t recently(struct redis_tier *t, const struct kvt_key *key, int64_t now_us)
{
	const struct redis_recent *r = recent_of(t, key);

	return memcmp(&r->key, key, sizeof(*key)) == 0 && now_us - r->at_us < RECENT_US ? r->at_us
											 : 0;
}

/* Notes that the chunk is written or read now, and returns its score. parent NULL: the chunk begins
 * a prompt. */
static int64_t touch(
	struct redis_tier *t, const struct kvt_key *key, const struct kvt_key *parent)
{
	int64_t now_us = kvt_wall(t->s) / 1000;
	int64_t before = parent != NULL ? recently(t, parent, now_us) : 0;
	struct redis_recent *r = recent_of(t, key);

	r->key = *key;
	r->at_us = before > 1 ? before - 1 : now_us;
	return r->at_us;
}

/* --- accounts
 * ---------------------------------------------------------------------------------- */

/* Returns the bytes that a chunk counts in its account: its payload, and a footer for each part.
 * Names and Redis' own overhead are not counted, so that every writer of a chunk counts the
 * same. */
static uint64_t charge_of(uint64_t bytes, uint32_t parts)
{
	return bytes + (uint64_t)parts * REDIS_FOOTER;
}

static void make_entry(struct redis_account_entry *e, const struct kvt_key *key, uint64_t bytes, uint32_t parts,
	int64_t at_us)
{
	memcpy(e->member, key->bytes, sizeof(key->bytes));
	e->len = sizeof(key->bytes) +
		 (size_t)snprintf(e->member + sizeof(key->bytes),
			 sizeof(e->member) - sizeof(key->bytes), "%" PRIu64 ":%" PRIu32,
			 charge_of(bytes, parts), parts);
	(void)snprintf(e->score, sizeof(e->score), "%" PRId64, at_us);
}

/* Reads key and number of parts from an entry's name; returns 0 if the name is not of this form. */
static uint32_t parts_of(const struct redis_account_entry *e, struct kvt_key *key)
{
	const char *colon;
	unsigned long parts;

	if (e->len <= sizeof(key->bytes))
		return 0;
	memcpy(key->bytes, e->member, sizeof(key->bytes));
	colon = strchr(e->member + sizeof(key->bytes), ':');
	parts = colon != NULL ? strtoul(colon + 1, NULL, 10) : 0;
	return parts <= REDIS_MAX_PARTS ? (uint32_t)parts : 0;
}

/* The third word of an EVAL is its key, which decides the slot. */
static struct redis_ask *script_ask(struct redis_job *job)
{
	struct redis_tier *t = job->t;
	const struct redis_admission *a = job->admission;
	char name[REDIS_KEY_ROOM], limit[24], ttl[24], bytes[24];
	const struct redis_footer *f = &job->footer;
	size_t len = redis_account_name(&t->fingerprint, &f->tenant, name), n = 0;
	uint64_t ttl_ms = t->ttl_ns / 1000000;
	struct redis_word words[9 + 2 * VICTIMS];
	struct redis_ask *ask;

	words[n++] = REDIS_WORD("EVAL");
	words[n++] = REDIS_WORD(script);
	words[n++] = REDIS_WORD("1");
	words[n++] = (struct redis_word){name, len};
	words[n++] = (struct redis_word){
		limit, (size_t)snprintf(limit, sizeof(limit), "%" PRIu64, t->quota.bytes)};
	words[n++] = (struct redis_word){ttl,
		(size_t)snprintf(ttl, sizeof(ttl), "%" PRIu64, ttl_ms != 0 ? ttl_ms + SLACK_MS : 0)};
	words[n++] = (struct redis_word){a->own.member, a->own.len};
	words[n++] = (struct redis_word){
		bytes, (size_t)snprintf(bytes, sizeof(bytes), "%" PRIu64, a->bytes)};
	words[n++] = (struct redis_word){a->own.score, strlen(a->own.score)};
	for (uint32_t i = 0; i < a->victim_count; i++) {
		words[n++] = (struct redis_word){job->victims[i].member, job->victims[i].len};
		words[n++] = (struct redis_word){job->victims[i].score, strlen(job->victims[i].score)};
	}
	ask = redis_ask_new(t, words, n, NULL, 0, 0);
	if (ask == NULL)
		return NULL;
	ask->command.slot = kvw_redis_slot(name, len);
	ask->command.elements = true;
	ask->command.element_limit = ANSWER_MOST;
	return ask;
}

/* Reads the victims from the script's answer. Returns false if the answer is not of the script's
 * form. */
static bool take_victims(
	struct redis_job *job, const struct kvw_redis_element *at, size_t count)
{
	struct redis_admission *a = job->admission;

	a->victim_count = 0;
	if (count >= 2 && job->victims == NULL)
		job->victims = calloc(VICTIMS, sizeof(*job->victims));
	if (count >= 2 && job->victims == NULL)
		return false;
	for (size_t i = 0; i + 1 < count && a->victim_count < VICTIMS; i += 2) {
		struct redis_account_entry *e = &job->victims[a->victim_count++];

		if (at[i].data == NULL || at[i].len >= sizeof(e->member) || at[i + 1].data == NULL ||
			at[i + 1].len >= sizeof(e->score))
			return false;
		memcpy(e->member, at[i].data, at[i].len);
		e->member[at[i].len] = '\0';
		e->len = at[i].len;
		memcpy(e->score, at[i + 1].data, at[i + 1].len + 1);
	}
	return true;
}

static void end_admission(struct redis_job *job)
{
	free(job->victims);
	free(job->admission);
	job->victims = NULL;
	job->admission = NULL;
}

/* --- making room
 * ------------------------------------------------------------------------------- */

/* Refuses a chunk for which its tenant has no room. */
static void refuse(struct redis_job *job, const char *why)
{
	redis_shares_refused(job->t, &job->footer.tenant);
	redis_refused(job->t, why);
	redis_job_end(job, KVT_FULL);
}

static void unlinked(struct redis_ask *ask)
{
	struct redis_job *job = ask->owner;
	enum kvt_status status = redis_ask_status(ask);

	if (status != KVT_OK && job->status != KVT_EIO)
		job->status = status;
	redis_ask_free(ask);
	if (--job->left > 0)
		return;
	if (job->status == KVT_OK) {
		REDIS_COUNT(job->t, quota_evicted, job->admission->victim_count);
		account(job);
	} else {
		/* the victims stay in the account: they were not unlinked */
		redis_job_end(job, job->status);
	}
}

static void unlink_victims(struct redis_job *job)
{
	struct redis_admission *a = job->admission;
	struct redis_ask *asks[VICTIMS];
	struct kvt_key key;
	uint32_t count = 0;

	for (uint32_t i = 0; i < a->victim_count; i++) {
		uint32_t parts = parts_of(&job->victims[i], &key);

		if (parts == 0)
			continue; /* the entry names no chunk, so there is nothing to unlink */
		asks[count] = redis_ask_parts(job->t, "UNLINK", &key, 0, parts);
		if (asks[count] == NULL) {
			while (count > 0)
				redis_ask_free(asks[--count]);
			redis_job_end(job, KVT_ENOMEM);
			return;
		}
		count++;
		kvt_presence_forget(job->t->presence, &key);
	}
	job->left = count;
	if (count == 0)
		account(job);
	for (uint32_t i = 0; i < count; i++)
		redis_ask_send(asks[i], unlinked, job, job->deadline_ns);
}

static void go_on(struct redis_job *job)
{
	void (*admitted)(struct redis_job *job) = job->admission->admitted;

	end_admission(job);
	admitted(job);
}

/* Called when the server cannot run the script, or does not allow it: without an account no chunk
 * is stored. */
static enum kvt_status unaccountable(struct redis_job *job, const struct redis_ask *ask)
{
	const struct kvw_redis_command *c = &ask->command;
	enum kvt_status status = redis_ask_status(ask);
	char text[KVW_REDIS_TEXT + 40];

	if (c->status != KVW_OK || c->reply != KVW_REDIS_ERROR)
		return status != KVT_OK && status != KVT_ECORRUPT ? status : KVT_EIO;
	(void)snprintf(text, sizeof(text), "protect.tenant_l2_bytes: %s", c->text);
	redis_refused(job->t, text);
	return strncmp(c->text, "ERR ", 4) == 0 || status == KVT_ECORRUPT ? KVT_FULL : status;
}

static void accounted(struct redis_ask *ask)
{
	struct redis_job *job = ask->owner;
	struct redis_admission *a = job->admission;
	const struct kvw_redis_element *e = ask->command.found;
	size_t count = redis_ask_status(ask) == KVT_OK && ask->command.reply == KVW_REDIS_ARRAY
			       ? ask->command.element_count
			       : 0;
	bool whole = count >= 2 && e[0].data != NULL && e[1].data != NULL &&
		     take_victims(job, e + 2, count - 2);
	enum kvt_status status = whole ? KVT_OK : unaccountable(job, ask);

	job->left = 0;
	if (whole)
		redis_shares_note(job->t, &job->footer.tenant, strtoull(e[0].data, NULL, 10),
			strtoull(e[1].data, NULL, 10));
	redis_ask_free(ask);
	if (status != KVT_OK)
		redis_job_end(job, status);
	else if (a->victim_count == 0)
		go_on(job);
	else if (a->rounds < ROUNDS)
		unlink_victims(job);
	else
		refuse(job, "protect.tenant_l2_bytes: others take the room that is made");
}

/* Enters the chunk, removes entries of unlinked chunks, and reads the victims. */
static void account(struct redis_job *job)
{
	struct redis_ask *ask = script_ask(job);

	if (ask == NULL) {
		redis_job_end(job, KVT_ENOMEM);
		return;
	}
	job->admission->rounds++;
	job->left = 1;
	redis_ask_send(ask, accounted, job, job->deadline_ns);
}

void redis_quota_admit(struct redis_job *job, void (*admitted)(struct redis_job *job))
{
	struct redis_tier *t = job->t;
	const struct redis_footer *f = &job->footer;
	struct redis_admission *a;

	if (t->quota.bytes == 0) {
		admitted(job);
		return;
	}
	if (charge_of(f->bytes, f->parts) > t->quota.bytes) {
		refuse(job, "protect.tenant_l2_bytes: a chunk is larger than that");
		return;
	}
	a = job->admission = calloc(1, sizeof(*a));
	if (a == NULL) {
		redis_job_end(job, KVT_ENOMEM);
		return;
	}
	a->admitted = admitted;
	a->bytes = charge_of(f->bytes, f->parts);
	make_entry(&a->own, &f->key, f->bytes, f->parts,
		touch(t, &f->key, (f->flags & REDIS_PARENT) != 0 ? &f->parent : NULL));
	account(job);
}

/* --- reading
 * ----------------------------------------------------------------------------------- */

static void touched(struct redis_ask *ask)
{
	/* if this update is late or lost, the chunk only counts as older than it is */
	redis_ask_free(ask);
}

void redis_quota_read(struct redis_tier *t, const struct redis_footer *f)
{
	char name[REDIS_KEY_ROOM];
	struct redis_account_entry e;
	struct redis_word words[5] = {REDIS_WORD("ZADD"), {name, 0}, REDIS_WORD("XX")};
	struct redis_ask *ask;

	if (t->quota.bytes == 0 || recently(t, &f->key, kvt_wall(t->s) / 1000) != 0)
		return;
	make_entry(&e, &f->key, f->bytes, f->parts,
		touch(t, &f->key, (f->flags & REDIS_PARENT) != 0 ? &f->parent : NULL));
	words[1].len = redis_account_name(&t->fingerprint, &f->tenant, name);
	words[3] = (struct redis_word){e.score, strlen(e.score)};
	words[4] = (struct redis_word){e.member, e.len};
	ask = redis_ask_new(t, words, 5, NULL, 0, 0);
	if (ask != NULL)
		redis_ask_send(ask, touched, t, kvt_now(t->s) + (int64_t)t->deadline_ns);
}
