/*
 * usage_round.c - adds usage to totals in Redis, and reads them.
 *
 * One command is under way at a time, so that what is read contains all that was sent.
 */
#include "sharing/usage_round.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/page.h"
#include "usage/field.h"
#include "usage/ledger.h"

#define SEND_NS     KVW_NS_PER_S
#define READ_NS     (5 * KVW_NS_PER_S)
#define ALL_NS      (600 * KVW_NS_PER_S) /* how often all hours are read */
#define REPLY_NS    (2 * KVW_NS_PER_S)
#define LEAVE_NS    (2 * KVW_NS_PER_S)
#define WARN_NS     (60 * KVW_NS_PER_S)
#define OPEN_NS     (50 * KVW_NS_PER_MS) /* how often an open command is looked at */
#define AT_ONCE     64                   /* users of a command */
#define AGAIN_S     120                  /* an hour is read for so long after its end */
#define ID_KEPT_S   172800
#define PREFIX_MOST 250
#define NAME_ROOM   (PREFIX_MOST + 64)
#define REPLY_MOST  ((uint32_t)12 << 20)

/* KEYS: the hour, the replica. ARGV: number of the command, seconds to keep the hour, seconds to
 * keep the replica, then a field and its counts for each user. Numbers are written by %.0f, since
 * Lua would write large ones with an exponent. */
static const char script[] =
	"local s=redis.call('GET',KEYS[2]) if s and tonumber(s)>=tonumber(ARGV[1]) then return 0 "
	"end for i=4,#ARGV,2 do local n={} for v in string.gmatch(ARGV[i+1],'%d+') do "
	"n[#n+1]=tonumber(v) end local o=redis.call('HGET',KEYS[1],ARGV[i]) if o then local k=1 "
	"for v in string.gmatch(o,'%d+') do n[k]=(n[k] or 0)+tonumber(v) k=k+1 end end for k=1,#n "
	"do n[k]=string.format('%.0f',n[k]) end "
	"redis.call('HSET',KEYS[1],ARGV[i],table.concat(n,' ')) end "
	"redis.call('EXPIRE',KEYS[1],ARGV[2]) "
	"redis.call('SET',KEYS[2],ARGV[1],'EX',ARGV[3]) return 1";

struct kvw_usage_round {
	struct kvw_ledger *ledger;
	char prefix[PREFIX_MOST + 1], id[24];
	int64_t send_ns, read_ns; /* when it is time */
	int64_t all_ns;     /* when all hours are read again */
	int64_t known_hour; /* hours before this one need not be read until then; 0: all must be */
	int64_t read_hour;  /* the one that is read next; 0: the first of those that must be read */
	int64_t warned_ns;   /* time of the last log line about a refusal; 0: there was none */
	uint64_t number;     /* of the command that is sent next, or again */

	struct kvw_redis_command command;
	struct iovec part;
	struct kvw_page text;         /* the request; its memory is kept */
	bool open, failed;            /* a command is under way; the last one failed */
	int64_t hour;                 /* of `table` */
	struct kvw_usage_table table; /* what the command adds; empty: nothing is on its way */
};

/* --- a request --- */

static void put_word(struct kvw_page *text, const char *data, size_t len)
{
	kvw_page_string(text, "$");
	kvw_page_u64(text, len);
	kvw_page_string(text, "\r\n");
	kvw_page_put(text, data, len);
	kvw_page_string(text, "\r\n");
}

static void put_number(struct kvw_page *text, int64_t number)
{
	char digits[24];

	put_word(text, digits,
		(size_t)snprintf(digits, sizeof(digits), "%lld", (long long)number));
}

static size_t hour_name(const struct kvw_usage_round *round, int64_t hour, char name[NAME_ROOM])
{
	return (size_t)snprintf(
		name, NAME_ROOM, "{%s:usage}:%lld", round->prefix, (long long)hour);
}

/* Begins a request in round->text. */
static struct kvw_page *begin_text(struct kvw_usage_round *round, size_t words, const char *verb)
{
	struct kvw_page *text = &round->text;

	text->len = 0;
	text->failed = false;
	kvw_page_string(text, "*");
	kvw_page_u64(text, words);
	kvw_page_string(text, "\r\n");
	put_word(text, verb, strlen(verb));
	return text;
}

static void submit(struct kvw_usage_round *round, struct kvw_redis *redis, uint32_t slot,
	bool reads, void (*done)(struct kvw_redis_command *command))
{
	if (round->text.failed)
		return; /* tried again at the next time */
	round->part = (struct iovec){round->text.data, round->text.len};
	round->command = (struct kvw_redis_command){
		.parts = &round->part,
		.part_count = 1,
		.slot = slot,
		.elements = reads,
		.element_limit = REPLY_MOST,
		.deadline_ns = kvw_clock_ns() + REPLY_NS,
		.done = done,
		.user = round,
	};
	round->open = true;
	kvw_redis_submit(redis, &round->command);
}

/* Logs that Redis refuses a command, or has more than can be read. */
static void note_failure(struct kvw_usage_round *round)
{
	const struct kvw_redis_command *command = &round->command;
	int64_t now_ns = kvw_clock_ns();
	bool large = command->status == KVW_ELIMIT;
	const char *why = "another reply than expected";

	round->failed = true;
	if ((command->status != KVW_OK && !large) ||
		(round->warned_ns != 0 && now_ns - round->warned_ns < WARN_NS))
		return;
	round->warned_ns = now_ns;
	if (large)
		why = "an hour has more than 12 MiB";
	else if (command->reply == KVW_REDIS_ERROR)
		why = command->text;
	kvw_warn("sharing", "usage is not shared why=\"%s\"", why);
}

/* --- adding --- */

static void added(struct kvw_redis_command *command)
{
	struct kvw_usage_round *round = command->user;

	round->open = false;
	if (command->status != KVW_OK || command->reply != KVW_REDIS_INTEGER) {
		note_failure(round); /* the same command is sent again */
		return;
	}
	round->failed = false;
	kvw_ledger_sent(round->ledger, round->hour, &round->table);
	kvw_usage_table_clear(&round->table);
	round->number++;
	round->send_ns = 0; /* there may be more */
}

static void put_user(
	struct kvw_page *text, const struct kvw_user *user, const struct kvw_used *used)
{
	char field[KVW_USAGE_FIELD_ROOM], counts[KVW_USAGE_COUNTS_ROOM];

	put_word(text, field, kvw_usage_field(user, field));
	put_word(text, counts, kvw_usage_counts(used, counts));
}

static bool is_empty(const struct kvw_usage_table *table)
{
	return table->count == 0 && !kvw_used_any(&table->other);
}

/* Sends what Redis does not have, unless it has all. After a failure the same command is sent
 * again. */
static void add(struct kvw_usage_round *round, struct kvw_redis *redis)
{
	const struct kvw_usage_table *table = &round->table;
	struct kvw_page *text;
	char name[NAME_ROOM];
	uint32_t slot;
	size_t len;
	bool other;

	if (is_empty(table) &&
		!kvw_ledger_unsent(round->ledger, AT_ONCE, &round->hour, &round->table))
		return;
	other = kvw_used_any(&table->other);
	text = begin_text(round, 8 + 2 * (table->count + other), "EVAL");
	put_word(text, script, sizeof(script) - 1);
	put_word(text, "2", 1);
	len = hour_name(round, round->hour, name);
	slot = kvw_redis_slot(name, len);
	put_word(text, name, len);
	len = (size_t)snprintf(name, sizeof(name), "{%s:usage}:of:%s", round->prefix, round->id);
	put_word(text, name, len);
	put_number(text, (int64_t)round->number);
	put_number(text, ((int64_t)kvw_ledger_hours(round->ledger) + 1) * KVW_USAGE_HOUR_S);
	put_number(text, ID_KEPT_S);
	for (size_t i = 0; i < table->count; i++) {
		struct kvw_user user = kvw_usage_entry_user(table, &table->entries[i]);

		put_user(text, &user, &table->entries[i].used);
	}
	if (other)
		put_user(text, NULL, &table->other);
	submit(round, redis, slot, false, added);
}

/* --- reading --- */

/* Goes on to the next hour, or after the present one waits. */
static void next_hour(struct kvw_usage_round *round)
{
	int64_t wall_s = kvw_clock_wall_ns() / KVW_NS_PER_S, read = round->read_hour++;

	if (wall_s - round->read_hour * KVW_USAGE_HOUR_S >= AGAIN_S)
		round->known_hour = round->read_hour;
	round->read_ns = 0;
	if (read >= wall_s / KVW_USAGE_HOUR_S) {
		round->read_ns = kvw_clock_ns() + READ_NS;
		round->read_hour = 0;
	}
}

static void hear(struct kvw_usage_table *table, const struct kvw_redis_element *field,
	const struct kvw_redis_element *value)
{
	if (field->data != NULL && value->data != NULL)
		kvw_usage_field_add(table, (struct kvw_slice){field->data, field->len},
			(struct kvw_slice){value->data, value->len});
}

static void heard(struct kvw_redis_command *command)
{
	struct kvw_usage_round *round = command->user;
	struct kvw_usage_table table;

	round->open = false;
	if (command->status != KVW_OK || command->reply != KVW_REDIS_ARRAY ||
		!kvw_usage_table_init(&table, 4 * (size_t)65536, false)) {
		note_failure(round);
		if (command->status == KVW_ELIMIT)
			next_hour(round); /* the others can be read */
	} else {
		for (size_t i = 0; i + 1 < command->element_count; i += 2)
			hear(&table, &command->found[i], &command->found[i + 1]);
		kvw_ledger_heard_take(round->ledger, round->read_hour, &table);
		round->failed = false;
		next_hour(round);
	}
	if (command->found != NULL)
		kvw_redis_elements_free(command->found, command->element_count);
	command->found = NULL;
}

static void read_hour(struct kvw_usage_round *round, struct kvw_redis *redis, int64_t now_ns)
{
	int64_t now = kvw_clock_wall_ns() / KVW_NS_PER_S / KVW_USAGE_HOUR_S,
		oldest = now - (int64_t)kvw_ledger_hours(round->ledger) + 1;
	struct kvw_page *text = begin_text(round, 2, "HGETALL");
	char name[NAME_ROOM];
	size_t len;

	if (round->read_hour == 0 && now_ns >= round->all_ns) {
		round->known_hour = 0;
		round->all_ns = now_ns + ALL_NS;
	}
	if (round->read_hour == 0)
		round->read_hour = round->known_hour > oldest ? round->known_hour : oldest;
	len = hour_name(round, round->read_hour, name);
	put_word(text, name, len);
	submit(round, redis, kvw_redis_slot(name, len), true, heard);
}

int64_t kvw_usage_round_step(struct kvw_usage_round *round, struct kvw_redis *redis, int64_t now_ns)
{
	if (round->ledger == NULL)
		return INT64_MAX;
	if (!round->open && now_ns >= round->send_ns) {
		round->send_ns = now_ns + SEND_NS;
		add(round, redis);
	}
	/* While a command is in doubt, its counts may be in Redis and in `own` at the same time. */
	if (!round->open && is_empty(&round->table) && now_ns >= round->read_ns) {
		round->read_ns = now_ns + READ_NS;
		read_hour(round, redis, now_ns);
	}
	if (round->open)
		return now_ns + OPEN_NS;
	return round->send_ns < round->read_ns ? round->send_ns : round->read_ns;
}

void kvw_usage_round_leave(struct kvw_usage_round *round, struct kvw_redis *redis)
{
	int64_t now_ns = kvw_clock_ns(), until_ns = now_ns + LEAVE_NS, next_ns = INT64_MAX;

	if (round->ledger == NULL)
		return;
	for (; now_ns < until_ns; now_ns = kvw_clock_ns()) {
		if (!round->open && (!round->failed || now_ns >= round->send_ns)) {
			round->send_ns = now_ns + SEND_NS / 4;
			add(round, redis);
			if (!round->open)
				return;
		}
		(void)kvw_redis_step(redis, OPEN_NS, &next_ns);
	}
	kvw_warn("sharing", "redis does not have all usage that this replica has counted");
}

/* --- life --- */

enum kvw_err kvw_usage_round_create(const char *prefix, struct kvw_usage_round **out)
{
	struct kvw_usage_round *round = calloc(1, sizeof(*round));
	uint64_t id = 0;

	if (round == NULL || !kvw_usage_table_init(&round->table, AT_ONCE, false)) {
		free(round);
		return KVW_ENOMEM;
	}
	if (getrandom(&id, sizeof(id), 0) != (ssize_t)sizeof(id))
		id = (uint64_t)kvw_clock_wall_ns();
	(void)snprintf(round->prefix, sizeof(round->prefix), "%s", prefix);
	(void)snprintf(round->id, sizeof(round->id), "%016llx", (unsigned long long)id);
	round->number = 1;
	*out = round;
	return KVW_OK;
}

void kvw_usage_round_destroy(struct kvw_usage_round *round)
{
	if (round == NULL)
		return;
	kvw_usage_table_finish(&round->table);
	free(round->text.data);
	free(round);
}

void kvw_usage_round_begin(struct kvw_usage_round *round, struct kvw_ledger *ledger)
{
	round->ledger = ledger;
}
