/* load_round.c - sends this replica's load to Redis, and applies the messages of the others. */
#include "sharing/load_round.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/log.h"
#include "redis/words.h"

#define REPLY_NS    (500 * KVW_NS_PER_MS)
#define NAME_ROOM   600
#define HEAD_ROOM   (NAME_ROOM * 2 + 2048)
#define REPLY_BYTES (KVW_PEERS * KVW_LOAD_BYTES)

/* Least time between two log lines about refusals by Redis. */
#define WARN_NS     (60 * KVW_NS_PER_S)

/* Writes this replica's field, drops fields that were not written for `life` or have no time, and
 * returns the others' messages, except those that are too long: another program's field would make
 * every reply large. */
static const char script[] =
	"local t=redis.call('TIME') local n=t[1]*1000+math.floor(t[2]/1000) local "
	"life=tonumber(ARGV[3]) redis.call('HSET',KEYS[1],ARGV[1],ARGV[2]) "
	"redis.call('ZADD',KEYS[2],n,ARGV[1]) for _,o in "
	"ipairs(redis.call('ZRANGEBYSCORE',KEYS[2],'-inf',n-life)) do redis.call('HDEL',KEYS[1],o) "
	"redis.call('ZREM',KEYS[2],o) end redis.call('PEXPIRE',KEYS[1],life) "
	"redis.call('PEXPIRE',KEYS[2],life) local s={} for _,o in "
	"ipairs(redis.call('ZRANGEBYSCORE',KEYS[2],'-inf','+inf')) do s[o]=1 end local r={} local "
	"a=redis.call('HGETALL',KEYS[1]) for i=1,#a,2 do if not s[a[i]] or "
	"#a[i+1]>tonumber(ARGV[4]) then redis.call('HDEL',KEYS[1],a[i]) elseif a[i]~=ARGV[1] then "
	"r[#r+1]=a[i+1] end end return r";

static const char leave_script[] =
	"redis.call('ZREM',KEYS[2],ARGV[1]) return redis.call('HDEL',KEYS[1],ARGV[1])";

_Static_assert(
	sizeof(script) + 2 * NAME_ROOM + 128 < HEAD_ROOM, "head and end have room for their words");

struct kvw_load_round {
	struct kvw_replica *replica;
	struct kvw_fleet *fleet;
	struct kvw_admission *admission;
	int64_t interval_ns, life_ns;
	int64_t next_ns;
	char load_name[NAME_ROOM], seen_name[NAME_ROOM], origin[24];
	struct kvw_load_state state;
	bool said_well; /* the log says that load is being shared */
	int64_t warned_ns; /* time of the last log line about a refusal; 0: there was none */
	struct kvw_redis_command command;
	bool open;                   /* a command is under way */
	struct kvw_redis_command leaving;
	struct iovec leaving_part;
	bool left;                   /* `leaving` is done */
	struct iovec parts[3]; /* the begin of the command, the message, the end of the command */
	char head[HEAD_ROOM], end[64];
	char message[KVW_LOAD_BYTES];
	struct kvw_replica_worker workers[KVW_MAX_WORKERS];
	struct kvw_worker *held[KVW_MAX_WORKERS];
	size_t count;
};

/* --- workers --- */

static void hold_workers(struct kvw_load_round *round)
{
	size_t slots = atomic_load(&round->fleet->count);

	round->count = 0;
	for (size_t i = 0; i < slots; i++) {
		struct kvw_worker *worker = round->fleet->workers[i];

		if (!kvw_worker_hold(worker))
			continue;
		round->held[round->count] = worker;
		round->workers[round->count++] =
			(struct kvw_replica_worker){worker->key, &worker->load, worker->id};
	}
}

static void let_go(struct kvw_load_round *round)
{
	for (size_t i = 0; i < round->count; i++)
		kvw_worker_let_go(round->held[i]);
	round->count = 0;
}

/* --- a reply --- */

static void note_state(struct kvw_load_round *round, int64_t now_ns)
{
	struct kvw_load_state *state = &round->state;
	struct kvw_replica_stats stats;
	int64_t last_ns = atomic_load(&state->last_ok_ns);
	bool well = last_ns != 0 && now_ns - last_ns < round->life_ns;

	kvw_replica_stats(round->replica, now_ns, &stats);
	atomic_store(&state->peers, (uint32_t)stats.peers);
	atomic_store(&state->oldest_ns, stats.oldest_ns);
	atomic_store(&state->trust, stats.trust);
	atomic_store(&state->degraded, !well);
	if (well == round->said_well)
		return;
	round->said_well = well;
	if (well)
		kvw_info("sharing", "load is shared with other replicas peers=%zu", stats.peers);
	else
		kvw_warn("sharing", "load is not shared: redis does not answer; this replica "
				    "counts its own alone");
}

static void hear(
	struct kvw_load_round *round, const struct kvw_redis_element *element, int64_t now_ns)
{
	struct kvw_load_state *state = &round->state;

	if (element->data == NULL)
		return;
	atomic_fetch_add(&state->heard_bytes, element->len);
	switch (kvw_replica_hear(round->replica, element->data, element->len, now_ns)) {
	case KVW_HEARD_NEW:
		atomic_fetch_add(&state->heard_new, 1);
		break;
	case KVW_HEARD_BAD:
		atomic_fetch_add(&state->heard_bad, 1);
		break;
	case KVW_HEARD_FULL:
		atomic_fetch_add(&state->heard_full, 1);
		break;
	case KVW_HEARD_OLD:
	case KVW_HEARD_OWN:
		atomic_fetch_add(&state->heard_old, 1);
		break;
	}
}

/* Logs that Redis refuses a command, because the key has another type, or the user lacks a
 * right. */
static void note_refusal(
	struct kvw_load_round *round, const struct kvw_redis_command *command, int64_t now_ns)
{
	if (command->status != KVW_OK ||
		(round->warned_ns != 0 && now_ns - round->warned_ns < WARN_NS))
		return;
	round->warned_ns = now_ns;
	kvw_warn("sharing", "load is not shared: redis refuses it key=%s why=\"%s\"",
		round->load_name,
		command->reply == KVW_REDIS_ERROR ? command->text : "another reply than messages");
}

static void done(struct kvw_redis_command *command)
{
	struct kvw_load_round *round = command->user;
	int64_t now_ns = kvw_clock_ns();

	round->open = false;
	if (command->status == KVW_OK && command->reply == KVW_REDIS_ARRAY) {
		for (size_t i = 0; i < command->element_count; i++)
			hear(round, &command->found[i], now_ns);
		atomic_store(&round->state.last_ok_ns, now_ns);
		atomic_fetch_add(&round->state.ok, 1);
		hold_workers(round);
		kvw_replica_apply(
			round->replica, round->workers, round->count, round->admission, now_ns);
		let_go(round);
	} else {
		atomic_fetch_add(&round->state.failed, 1);
		note_refusal(round, command, now_ns);
	}
	if (command->found != NULL)
		kvw_redis_elements_free(command->found, command->element_count);
	command->found = NULL;
	note_state(round, now_ns);
}

/* --- a command --- */

/* Writes a command with a script, its key and this replica's name. */
static char *put_eval(
	const struct kvw_load_round *round, char *at, size_t words, const char *text, size_t len)
{
	at = kvw_redis_put_count(at, words);
	at = kvw_redis_put_text(at, "EVAL");
	at = kvw_redis_put_word(at, text, len);
	at = kvw_redis_put_text(at, "2");
	at = kvw_redis_put_text(at, round->load_name);
	at = kvw_redis_put_text(at, round->seen_name);
	return kvw_redis_put_text(at, round->origin);
}

static void submit(struct kvw_load_round *round, struct kvw_redis *redis, int64_t now_ns)
{
	struct kvw_redis_command *command = &round->command;
	char *at = round->head;
	size_t len;

	hold_workers(round);
	len = kvw_replica_write(round->replica, round->workers, round->count, round->admission,
		now_ns, round->message);
	let_go(round);
	at = put_eval(round, at, 9, script, sizeof(script) - 1);
	at += sprintf(at, "$%zu\r\n", len);
	round->parts[0] = (struct iovec){round->head, (size_t)(at - round->head)};
	round->parts[1] = (struct iovec){round->message, len};
	at = round->end;
	memcpy(at, "\r\n", 2);
	at = kvw_redis_put_number(at + 2, round->life_ns / KVW_NS_PER_MS);
	at = kvw_redis_put_number(at, KVW_LOAD_BYTES);
	round->parts[2] = (struct iovec){round->end, (size_t)(at - round->end)};
	*command = (struct kvw_redis_command){
		.parts = round->parts,
		.part_count = 3,
		.slot = kvw_redis_slot(round->load_name, strlen(round->load_name)),
		.elements = true,
		.element_limit = REPLY_BYTES,
		.deadline_ns = now_ns + REPLY_NS,
		.done = done,
		.user = round,
	};
	round->open = true;
	atomic_fetch_add(&round->state.commands, 1);
	atomic_fetch_add(&round->state.said_bytes,
		round->parts[0].iov_len + round->parts[1].iov_len + round->parts[2].iov_len);
	kvw_redis_submit(redis, command);
}

int64_t kvw_load_round_step(struct kvw_load_round *round, struct kvw_redis *redis, int64_t now_ns)
{
	if (now_ns < round->next_ns)
		return round->next_ns;
	round->next_ns = now_ns + round->interval_ns;
	/* Messages expire also while no replies come. */
	hold_workers(round);
	kvw_replica_apply(round->replica, round->workers, round->count, round->admission, now_ns);
	let_go(round);
	note_state(round, now_ns);
	if (!round->open)
		submit(round, redis, now_ns);
	return round->next_ns;
}

/* --- the end --- */

static void has_left(struct kvw_redis_command *command)
{
	struct kvw_load_round *round = command->user;

	round->left = true;
	if (command->found != NULL)
		kvw_redis_elements_free(command->found, command->element_count);
	command->found = NULL;
}

void kvw_load_round_leave(struct kvw_load_round *round, struct kvw_redis *redis, int64_t most_ns)
{
	int64_t now_ns = kvw_clock_ns(), until_ns = now_ns + most_ns, next_ns = INT64_MAX;
	char text[HEAD_ROOM];

	if (atomic_load(&round->state.degraded))
		return;
	round->leaving_part = (struct iovec){text,
		(size_t)(put_eval(round, text, 6, leave_script, sizeof(leave_script) - 1) - text)};
	round->leaving = (struct kvw_redis_command){
		.parts = &round->leaving_part,
		.part_count = 1,
		.slot = kvw_redis_slot(round->load_name, strlen(round->load_name)),
		.deadline_ns = until_ns,
		.done = has_left,
		.user = round,
	};
	/* On the same connection, so that it follows a command that is still under way. */
	kvw_redis_submit(redis, &round->leaving);
	while (!round->left) {
		now_ns = kvw_clock_ns();
		(void)kvw_redis_step(redis, until_ns > now_ns ? until_ns - now_ns : 0, &next_ns);
	}
}

/* --- life --- */

enum kvw_err kvw_load_round_create(const struct kvw_config *config, struct kvw_load_round **out)
{
	struct kvw_load_round *round = calloc(1, sizeof(*round));
	uint64_t origin = 0;

	if (round == NULL)
		return KVW_ENOMEM;
	while (origin == 0)
		if (getrandom(&origin, sizeof(origin), 0) != (ssize_t)sizeof(origin))
			origin = (uint64_t)kvw_clock_wall_ns();
	round->interval_ns = config->replicas_interval_ms * KVW_NS_PER_MS;
	round->life_ns = config->replicas_life_ms * KVW_NS_PER_MS;
	round->replica = kvw_replica_create(origin, round->life_ns);
	if (round->replica == NULL) {
		free(round);
		return KVW_ENOMEM;
	}
	(void)snprintf(round->origin, sizeof(round->origin), "%016llx", (unsigned long long)origin);
	(void)snprintf(round->load_name, sizeof(round->load_name), "{%.250s:%.250s}:load",
		config->replicas_prefix, config->replicas_group);
	(void)snprintf(round->seen_name, sizeof(round->seen_name), "{%.250s:%.250s}:seen",
		config->replicas_prefix, config->replicas_group);
	atomic_store(&round->state.degraded, true);
	atomic_store(&round->state.trust, 1);
	*out = round;
	return KVW_OK;
}

void kvw_load_round_destroy(struct kvw_load_round *round)
{
	if (round == NULL)
		return;
	kvw_replica_destroy(round->replica);
	free(round);
}

void kvw_load_round_begin(
	struct kvw_load_round *round, struct kvw_fleet *fleet, struct kvw_admission *admission)
{
	round->fleet = fleet;
	round->admission = admission;
}

struct kvw_load_state *kvw_load_round_state(struct kvw_load_round *round)
{
	return &round->state;
}
