/*
 * redis_table.c - the table of generations (chunk/slots.h), one for all caches that use this Redis.
 *
 * The table is a sorted set, kvt1:generations: each slot that was ever changed, scored by the
 * number of its last change, the table's id, scored 0, and "sum", scored -1 minus the sum of the
 * numbers. One script reads the changes after a number and, on request, gives a slot a larger
 * number than all others. If there is no table, or one that is behind the asker, the script begins
 * a new one. A table has 132,096 slots at most; 10 MB.
 *
 * A failover may lose the last changes: a handle that knew one of them sees another sum, and begins
 * a new table. A failover that loses a change unknown to every running handle brings the erased
 * chunks back: Redis promises no more. A full server refuses a change, and so the erase.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tiers/redis/redis_tier.h"

#define NAME        "kvt1:generations"
#define ANSWER_MOST (128u << 10)
#define ID_TEXT     (3 + 2 * KVT_TABLE_ID_BYTES)

/* KEYS: the table. ARGV: the table id and the last number that the asker knows, the slot to change
 * or "", an id in case that a new table is begun, the step from the largest number to that of the
 * change. Returns the id and the sum, then slots and their numbers. */
static const char script[] =
	"local t = KEYS[1]\n"
	"if redis.call('TYPE', t)['ok'] ~= 'zset' then redis.call('DEL', t) end\n"
	"local head = redis.call('ZRANGE', t, 0, 1, 'WITHSCORES')\n"
	"local last = tonumber(redis.call('ZRANGE', t, -1, -1, 'WITHSCORES')[2] or 0)\n"
	"local sum, id = -1 - tonumber(head[2] or -1), head[3]\n"
	"local behind = id == ARGV[1] and last < tonumber(ARGV[2])\n"
	"if head[1] ~= 'sum' or head[4] ~= '0' or behind then\n"
	"  redis.call('DEL', t)\n"
	"  redis.call('ZADD', t, -1, 'sum', 0, ARGV[4])\n"
	"  sum, id, last = 0, ARGV[4], 0\n"
	"end\n"
	"if ARGV[3] ~= '' then\n"
	"  local was = tonumber(redis.call('ZSCORE', t, ARGV[3]) or 0)\n"
	"  last = last + tonumber(ARGV[5])\n"
	"  sum = (sum + last - was) % 4294967296\n"
	"  local score = string.format('%.0f', -1 - sum)\n"
	"  redis.call('ZADD', t, string.format('%.0f', last), ARGV[3], score, 'sum')\n"
	"end\n"
	"local from = '0'\n"
	"if id == ARGV[1] then from = ARGV[2] end\n"
	"local out = redis.call('ZRANGEBYSCORE', t, '(' .. from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1024)\n"
	"table.insert(out, 1, string.format('%.0f', sum))\n"
	"table.insert(out, 1, id)\n"
	"return out\n";

_Static_assert(KVT_CHANGES_MOST == 1024, "as many as the script answers");

static void id_text(const uint8_t id[KVT_TABLE_ID_BYTES], char out[ID_TEXT + 1])
{
	memcpy(out, "id:", 3);
	for (size_t i = 0; i < KVT_TABLE_ID_BYTES; i++)
		(void)sprintf(out + 3 + 2 * i, "%02x", id[i]);
}

static bool id_read(const struct kvw_redis_element *e, uint8_t out[KVT_TABLE_ID_BYTES])
{
	char text[ID_TEXT + 1];
	unsigned byte;

	if (e->data == NULL || e->len != ID_TEXT)
		return false;
	for (size_t i = 0; i < KVT_TABLE_ID_BYTES; i++) {
		if (sscanf(e->data + 3 + 2 * i, "%2x", &byte) != 1)
			return false;
		out[i] = (uint8_t)byte;
	}
	id_text(out, text);
	return memcmp(text, e->data, ID_TEXT) == 0;
}

/* Reads a number from 0 to 2^53. */
static bool number_read(const struct kvw_redis_element *e, uint64_t *out)
{
	char *end;

	if (e->data == NULL || e->len == 0 || e->len > 16 || e->data[0] < '0' || e->data[0] > '9')
		return false;
	*out = strtoull(e->data, &end, 10);
	return end == e->data + e->len && *out <= 1ull << 53;
}

/* Returns false if the answer is not of the script's form. */
static bool read_answer(const struct redis_ask *ask, struct kvt_table_ask *out)
{
	const struct kvw_redis_element *e = ask->command.found;
	size_t count = ask->command.element_count;
	uint64_t slot, sum;

	if (ask->command.reply != KVW_REDIS_ARRAY || count < 2 || count % 2 != 0 ||
		count > 2 + 2 * KVT_CHANGES_MOST)
		return false;
	if (!id_read(&e[0], out->now) || !number_read(&e[1], &sum))
		return false;
	out->sum = (uint32_t)sum;
	out->change_count = (uint32_t)(count / 2) - 1;
	out->more = out->change_count == KVT_CHANGES_MOST;
	for (uint32_t i = 0; i < out->change_count; i++) {
		if (!number_read(&e[2 + 2 * i], &slot) || slot >= KVT_SLOTS ||
			!number_read(&e[3 + 2 * i], &out->changes[i].number))
			return false;
		out->changes[i].slot = (uint32_t)slot;
	}
	return true;
}

/* The key of the tenant whose generation changed is unlinked, too. */
static void forgotten(struct redis_ask *ask)
{
	struct redis_job *job = ask->owner;
	enum kvt_status status = redis_ask_status(ask);

	redis_ask_free(ask);
	redis_job_end(job, status == KVT_OK ? KVT_OK : KVT_EIO);
}

static void forget_key(struct redis_job *job)
{
	struct redis_tier *t = job->t;
	char name[REDIS_KEY_ROOM];
	size_t len = redis_tenant_key_name(&t->fingerprint, job->request->table->tenant, name);
	struct redis_word words[2] = {REDIS_WORD("UNLINK"), {name, len}};
	struct redis_ask *ask = redis_ask_new(t, words, 2, NULL, 0, 0);

	if (ask == NULL)
		redis_job_end(job, KVT_ENOMEM);
	else
		redis_ask_send(ask, forgotten, job, job->deadline_ns);
}

static void answered(struct redis_ask *ask)
{
	struct redis_job *job = ask->owner;
	enum kvt_status status = redis_ask_status(ask);

	if (ask->command.status == KVW_OK &&
		(status != KVT_OK || !read_answer(ask, job->request->table)))
		status = KVT_ENOTSUP;
	redis_ask_free(ask);
	if (status == KVT_OK && job->request->table->raise != KVT_SLOT_NONE && job->t->sealer != NULL &&
		job->request->table->tenant != NULL)
		forget_key(job);
	else
		redis_job_end(job, status);
}

void redis_table_begin(struct redis_job *job)
{
	const struct kvt_table_ask *of = job->request->table;
	char known[ID_TEXT + 1], fresh[ID_TEXT + 1], after[24], slot[16] = "", step[24];
	struct redis_word words[9] = {
		REDIS_WORD("EVAL"), REDIS_WORD(script), REDIS_WORD("1"), REDIS_WORD(NAME)};
	struct redis_ask *ask;

	id_text(of->id, known);
	id_text(of->fresh, fresh);
	words[4] = (struct redis_word){known, ID_TEXT};
	words[5] = (struct redis_word){after, (size_t)snprintf(after, sizeof(after), "%" PRIu64, of->after)};
	if (of->raise != KVT_SLOT_NONE)
		(void)snprintf(slot, sizeof(slot), "%" PRIu32, of->raise);
	words[6] = (struct redis_word){slot, strlen(slot)};
	words[7] = (struct redis_word){fresh, ID_TEXT};
	words[8] = (struct redis_word){
		step, (size_t)snprintf(step, sizeof(step), "%" PRIu64, kvt_change_step(of->fresh))};
	ask = redis_ask_new(job->t, words, 9, NULL, 0, 0);
	if (ask == NULL) {
		redis_job_end(job, KVT_ENOMEM);
		return;
	}
	ask->command.slot = kvw_redis_slot(NAME, sizeof(NAME) - 1);
	ask->command.elements = true;
	ask->command.element_limit = ANSWER_MOST;
	redis_ask_send(ask, answered, job, job->deadline_ns);
}
