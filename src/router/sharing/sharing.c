/*
 * sharing.c - adds this replica's charges to totals in Redis, and runs the exchange of load and the
 * one of usage.
 *
 * In Redis each key, tenant or model is a hash of counters: `r` requests, `t` tokens, `dDAY` tokens
 * of a day, and `n` exchanges, by which lost totals are known. A script adds to all four and
 * returns them, so a subject takes one command, and its name one slot of a Cluster. After a lost
 * connection a command may be executed twice; those are few, and count too much rather than too
 * little.
 *
 * A round has at most ORDERS commands. With more subjects the next rounds continue with the rest,
 * so each waits a few intervals longer.
 */
#include "sharing/sharing.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "rates/share.h"
#include "redis/redis.h"
#include "redis/words.h"
#include "sharing/duty_round.h"
#include "sharing/load_round.h"
#include "sharing/usage_round.h"

#define ORDERS      1024
#define REPLY_NS    (500 * KVW_NS_PER_MS)
#define CONNECT_NS  (2 * KVW_NS_PER_S)
#define LEAVE_NS    (200 * KVW_NS_PER_MS)
#define KEPT_S      "172800"
#define TEXT_ROOM   900
#define PREFIX_MOST 256

static const char script[] =
	"local r=redis.call('HINCRBY',KEYS[1],'r',ARGV[1]) "
	"local t=redis.call('HINCRBY',KEYS[1],'t',ARGV[2]) "
	"local d=redis.call('HINCRBY',KEYS[1],'d'..ARGV[3],ARGV[4]) "
	"local n=redis.call('HINCRBY',KEYS[1],'n',1) "
	"redis.call('HDEL',KEYS[1],'d'..(ARGV[3]-2)) "
	"redis.call('EXPIRE',KEYS[1]," KEPT_S ") "
	"return {r,t,d,n}";

/* One subject of a round. */
struct order {
	struct kvw_redis_command command;
	struct iovec part;
	struct kvw_sharing *sharing;
	struct kvw_rate_subject *subject; /* held */
	struct kvw_rate_sums news;
	char text[TEXT_ROOM + sizeof(script)]; /* the request */
};

struct kvw_sharing {
	struct kvw_redis *redis;
	struct kvw_rate_table *table; /* NULL: limits are not shared */
	struct kvw_load_round *load;  /* NULL: load is not shared */
	struct kvw_usage_round *usage; /* NULL: usage is not shared here */
	struct kvw_duty_round *duty;  /* NULL: nothing is agreed on */
	int64_t interval_ns;
	char prefix[PREFIX_MOST];
	pthread_t thread;
	bool started;
	_Atomic bool ending;
	struct kvw_sharing_state state;

	/* The thread's members. */
	struct order orders[ORDERS];
	size_t count, open; /* number of commands in this round, and of those not answered yet */
	size_t heard;
	uint32_t round;
};

static struct kvw_rate_time time_now(const struct kvw_sharing *sharing)
{
	return kvw_rate_time_counted(
		sharing->table, (struct kvw_rate_time){kvw_clock_ns(), kvw_clock_wall_ns()});
}

/* --- one order --- */

/* Reads the totals in the reply. */
static bool read_totals(const struct kvw_redis_command *command, struct kvw_rate_sums *totals)
{
	struct kvw_slice texts[KVW_RATE_TOTALS];

	if (command->status != KVW_OK || command->reply != KVW_REDIS_ARRAY ||
		command->element_count != KVW_RATE_TOTALS)
		return false;
	for (size_t i = 0; i < KVW_RATE_TOTALS; i++)
		texts[i] = (struct kvw_slice){command->found[i].data, command->found[i].len};
	return kvw_rate_share_read(texts, totals);
}

static void done(struct kvw_redis_command *command)
{
	struct order *order = command->user;
	struct kvw_sharing *sharing = order->sharing;
	struct kvw_rate_time now = time_now(sharing);
	struct kvw_rate_sums totals = {.day = order->news.day};

	if (read_totals(command, &totals)) {
		kvw_rate_share_totals(order->subject, &order->news, &totals, &now);
		sharing->heard++;
	} else {
		kvw_rate_share_failed(order->subject, &order->news);
		if (command->status == KVW_OK && command->reply == KVW_REDIS_ERROR)
			kvw_debug("sharing", "redis says \"%s\"", command->text);
	}
	if (command->found != NULL)
		kvw_redis_elements_free(command->found, command->element_count);
	command->found = NULL;
	kvw_rate_subject_put(order->subject);
	sharing->open--;
}

static void submit(struct order *order)
{
	static const char *const kinds[KVW_RATE_KINDS] = {"key:", "tenant:", "model:"};
	const struct kvw_rate_subject *subject = order->subject;
	struct kvw_redis_command *command = &order->command;
	char name[TEXT_ROOM / 2], *at = order->text;
	int len = snprintf(name, sizeof(name), "%s:rates:%s%.*s", order->sharing->prefix,
		kinds[subject->kind], (int)subject->name_len, subject->name);
	size_t name_len = (size_t)len < sizeof(name) ? (size_t)len : sizeof(name) - 1;

	at = kvw_redis_put_count(at, 8);
	at = kvw_redis_put_text(at, "EVAL");
	at = kvw_redis_put_word(at, script, sizeof(script) - 1);
	at = kvw_redis_put_text(at, "1");
	at = kvw_redis_put_word(at, name, name_len);
	at = kvw_redis_put_number(at, order->news.requests);
	at = kvw_redis_put_number(at, order->news.tokens);
	at = kvw_redis_put_number(at, (int64_t)order->news.day);
	at = kvw_redis_put_number(at, order->news.day_tokens);
	order->part = (struct iovec){order->text, (size_t)(at - order->text)};
	*command = (struct kvw_redis_command){
		.parts = &order->part,
		.part_count = 1,
		.slot = kvw_redis_slot(name, name_len),
		.elements = true,
		.element_limit = 256,
		.deadline_ns = kvw_clock_ns() + REPLY_NS,
		.done = done,
		.user = order,
	};
	kvw_redis_submit(order->sharing->redis, command);
}

/* --- a round --- */

static void take_subject(void *arg, struct kvw_rate_subject *subject)
{
	struct kvw_sharing *sharing = arg;
	struct kvw_rate_time now;
	struct order *order;

	if (sharing->count == ORDERS || subject->shared.round == sharing->round)
		return;
	now = time_now(sharing);
	if (!kvw_rate_share_wants(subject, now.now_ns))
		return;
	order = &sharing->orders[sharing->count++];
	order->sharing = sharing;
	order->subject = subject;
	/* The caller holds the lock of the subject's part of the table. */
	atomic_fetch_add_explicit(&subject->users, 1, memory_order_relaxed);
	subject->shared.round = sharing->round;
	kvw_rate_share_news(subject, &now, &order->news);
}

/* Waits for Redis, until until_ns at most, and exchanges load when it is time. */
static void step(struct kvw_sharing *sharing, int64_t until_ns)
{
	int64_t now_ns = kvw_clock_ns(), next_ns = INT64_MAX;

	if (sharing->load != NULL) {
		int64_t load_ns = kvw_load_round_step(sharing->load, sharing->redis, now_ns);

		until_ns = load_ns < until_ns ? load_ns : until_ns;
	}
	if (sharing->usage != NULL) {
		int64_t usage_ns = kvw_usage_round_step(sharing->usage, sharing->redis, now_ns);

		until_ns = usage_ns < until_ns ? usage_ns : until_ns;
	}
	if (sharing->duty != NULL) {
		int64_t duty_ns = kvw_duty_round_step(sharing->duty, sharing->redis, now_ns);

		until_ns = duty_ns < until_ns ? duty_ns : until_ns;
	}
	(void)kvw_redis_step(sharing->redis, until_ns > now_ns ? until_ns - now_ns : 0, &next_ns);
}

static void exchange(struct kvw_sharing *sharing)
{
	if (sharing->table == NULL)
		return;
	sharing->count = sharing->heard = 0;
	kvw_rate_table_each(sharing->table, take_subject, sharing);
	if (sharing->count < ORDERS)
		sharing->round++;
	sharing->open = sharing->count;
	for (size_t i = 0; i < sharing->count; i++)
		submit(&sharing->orders[i]);
	while (sharing->open > 0 && !atomic_load(&sharing->ending))
		step(sharing, kvw_clock_ns() + 20 * KVW_NS_PER_MS);
	if (sharing->count == 0)
		return;
	atomic_fetch_add(&sharing->state.exchanged, sharing->heard);
	atomic_fetch_add(&sharing->state.failed, sharing->count - sharing->heard);
	atomic_store(&sharing->state.working, sharing->heard > 0);
}

static void *run_sharing(void *arg)
{
	struct kvw_sharing *sharing = arg;

	while (!atomic_load(&sharing->ending)) {
		int64_t begun_ns = kvw_clock_ns(), left_ns = sharing->interval_ns;

		exchange(sharing);
		while (!atomic_load(&sharing->ending) && left_ns > 0) {
			left_ns = begun_ns + sharing->interval_ns - kvw_clock_ns();
			if (left_ns > 0)
				step(sharing, begun_ns + sharing->interval_ns);
		}
	}
	if (sharing->load != NULL)
		kvw_load_round_leave(sharing->load, sharing->redis, LEAVE_NS);
	if (sharing->usage != NULL)
		kvw_usage_round_leave(sharing->usage, sharing->redis);
	return NULL;
}

/* --- life --- */

static int64_t clock_ns(void *self)
{
	(void)self;
	return kvw_clock_ns();
}

static void note_line(void *self, uint32_t level, const char *line)
{
	(void)self;
	kvw_log((enum kvw_log_level)level, "sharing", "%s", line);
}

enum kvw_err kvw_sharing_create(
	const struct kvw_config *config, unsigned parts, FILE *errors, struct kvw_sharing **out)
{
	const bool rates = (parts & KVW_SHARED_RATES) != 0;
	const char *key = rates ? "rate_sharing.redis" : "replicas.redis";
	struct kvw_sharing *sharing = calloc(1, sizeof(*sharing));
	struct kvw_redis_url url;
	struct kvw_redis_options options = {.url = &url,
		.service = rates ? config->rate_sharing_service : config->replicas_service,
		.connections = 1,
		.inflight_bytes = (uint64_t)16 << 20,
		.connect_ns = (uint64_t)CONNECT_NS,
		.env = {.now_ns = clock_ns, .log = note_line}};
	const char *expected = kvw_redis_url_parse(
		rates ? config->rate_sharing_redis : config->replicas_redis, &url);
	char why[KVW_REDIS_REASON] = "";
	enum kvw_err err = sharing == NULL ? KVW_ENOMEM : KVW_OK;

	if (err == KVW_OK && expected != NULL) {
		fprintf(errors, "kvway: %s: expected %s\n", key, expected);
		err = KVW_EINVAL;
	}
	if (err == KVW_OK) {
		err = kvw_redis_create(&options, why, &sharing->redis);
		if (err != KVW_OK && err != KVW_ENOMEM)
			fprintf(errors, "kvway: %s: %s\n", key, why);
	}
	explicit_bzero(&url, sizeof(url));
	if (err == KVW_OK && (parts & KVW_SHARED_LOAD) != 0)
		err = kvw_load_round_create(config, &sharing->load);
	if (err == KVW_OK && (parts & KVW_SHARED_USAGE) != 0)
		err = kvw_usage_round_create(rates ? config->rate_sharing_prefix
						   : config->replicas_prefix,
			&sharing->usage);
	if (err != KVW_OK) {
		if (sharing != NULL) {
			kvw_redis_destroy(sharing->redis);
			kvw_load_round_destroy(sharing->load);
		}
		free(sharing);
		return err;
	}
	sharing->interval_ns = config->rate_sharing_interval_ms * KVW_NS_PER_MS;
	(void)snprintf(sharing->prefix, sizeof(sharing->prefix), "%s", config->rate_sharing_prefix);
	sharing->round = 1;
	*out = sharing;
	return KVW_OK;
}

enum kvw_err kvw_sharing_agree(struct kvw_sharing *sharing, const struct kvw_config *config,
	const char *name, struct kvw_duty *duty)
{
	return kvw_duty_round_create(config, name, duty, &sharing->duty);
}

enum kvw_err kvw_sharing_start(struct kvw_sharing *sharing, struct kvw_rate_table *table,
	struct kvw_fleet *fleet, struct kvw_admission *admission, struct kvw_ledger *ledger)
{
	sharing->table = table;
	if (sharing->load != NULL)
		kvw_load_round_begin(sharing->load, fleet, admission);
	if (sharing->usage != NULL)
		kvw_usage_round_begin(sharing->usage, ledger);
	if (kvw_thread_start(&sharing->thread, run_sharing, sharing) != 0)
		return KVW_ENOMEM;
	(void)pthread_setname_np(sharing->thread, "kvway-sharing");
	sharing->started = true;
	return KVW_OK;
}

void kvw_sharing_stop(struct kvw_sharing *sharing)
{
	if (sharing == NULL)
		return;
	if (sharing->started) {
		atomic_store(&sharing->ending, true);
		kvw_redis_wake(sharing->redis);
		pthread_join(sharing->thread, NULL);
	}
	kvw_redis_destroy(sharing->redis); /* ends commands under way */
	kvw_load_round_destroy(sharing->load);
	kvw_usage_round_destroy(sharing->usage);
	kvw_duty_round_destroy(sharing->duty);
	free(sharing);
}

const struct kvw_sharing_state *kvw_sharing_state(const struct kvw_sharing *sharing)
{
	return &sharing->state;
}

const struct kvw_load_state *kvw_sharing_load_state(const struct kvw_sharing *sharing)
{
	return sharing->load == NULL ? NULL : kvw_load_round_state(sharing->load);
}
