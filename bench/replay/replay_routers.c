/*
 * replay_routers.c - several replicas of kvway before the same workers.
 *
 * What the routers say to each other is due at moments of its own; it is caught up with, in order,
 * before anything else that is later. Nothing happens in between that it could change.
 */
#include "bench/replay/replay_routers.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "bench/load/mem.h"
#include "bench/replay/policy_kvway.h"
#include "sharing/replica.h"

#define KEPT     64 /* most messages of a router that are under way */
#define STALE_NS INT64_C(30000000000)

/* A message under way. */
struct said {
	int64_t ns; /* when it was sent */
	size_t len; /* 0: none */
	char *text;
};

struct router {
	void *policy;
	void *gate; /* NULL: no admission */
	struct kvw_replica *replica;
	struct kvw_replica_worker *workers;
	struct said said[KEPT];
	uint64_t count;    /* number of messages that were ever sent */
	int64_t speaks_ns; /* when it sends the next message */
	uint32_t *streams; /* answers that have begun, by worker */
};

struct routers {
	const struct kvb_fleet *fleet;
	const struct kvb_routers *options;
	struct router items[KVB_MOST_ROUTERS];
	struct kvw_load_news *odd; /* messages of the false peer; NULL: no false peer */
	char *text;                /* room for one message */
	uint64_t odd_sequence;
};

/* Returns the router that gets a request. */
static struct router *router_of(struct routers *r, uint32_t job)
{
	const struct kvb_job *j = &r->fleet->jobs->items[job];
	uint64_t by = r->options->sticky ? kvb_job_block(j, KVB_ID_TOKENS, j->input > 2 * KVB_ID_TOKENS ? 1 : 0) : kvb_mix(job + 1);

	return &r->items[kvb_mix(by) % r->options->count];
}

/* --- messages between routers --- */

static void speak(struct routers *r, struct router *router, int64_t now_ns)
{
	struct said *said = &router->said[router->count++ % KEPT];

	if (said->text == NULL)
		said->text = kvb_alloc(KVW_LOAD_BYTES, 1);
	said->len = kvw_replica_write(router->replica, router->workers, r->fleet->options.workers,
		router->gate != NULL ? kvb_admission_kvway_shared(router->gate) : NULL, now_ns, said->text);
	said->ns = now_ns;
}

/* Returns the last message that has arrived by now; NULL: none. */
static const struct said *last_of(const struct routers *r, const struct router *router, int64_t now_ns)
{
	for (uint64_t i = 0; i < router->count && i < KEPT; i++) {
		const struct said *said = &router->said[(router->count - 1 - i) % KEPT];

		if (said->ns + r->options->delay_ns <= now_ns)
			return said;
	}
	return NULL;
}

static void say_odd(struct routers *r, struct router *router, int64_t now_ns)
{
	struct kvw_load_news *news = r->odd;
	uint32_t workers = r->fleet->options.workers;

	if (r->options->odd == KVB_PEER_STALE) {
		const struct said *said = last_of(r, &r->items[0], STALE_NS);

		if (now_ns < STALE_NS || said == NULL)
			return;
		if (news->origin == 0 && kvw_load_read(said->text, said->len, news) != KVW_OK)
			abort();
	} else {
		news->work = (struct kvw_admission_work){0};
		news->count = r->options->odd == KVB_PEER_LYING ? workers : workers / 2;
		for (uint32_t w = 0; w < news->count; w++)
			news->entries[w] = (struct kvw_load_entry){router->workers[w].key,
				{INT64_MAX, INT64_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX}};
	}
	news->origin = UINT64_MAX;
	news->sequence = ++r->odd_sequence;
	(void)kvw_replica_hear(router->replica, r->text, kvw_load_write(news, r->text), now_ns);
}

static void exchange(struct routers *r, struct router *router, int64_t now_ns)
{
	if (now_ns < r->options->lost_ns) {
		speak(r, router, now_ns);
		for (uint32_t i = 0; i < r->options->count; i++) {
			const struct said *said = last_of(r, &r->items[i], now_ns);

			if (&r->items[i] != router && said != NULL)
				(void)kvw_replica_hear(router->replica, said->text, said->len, now_ns);
		}
		if (r->odd != NULL)
			say_odd(r, router, now_ns);
	}
	kvw_replica_apply(router->replica, router->workers, r->fleet->options.workers,
		router->gate != NULL ? kvb_admission_kvway_shared(router->gate) : NULL, now_ns);
}

/* Does everything that is due by now. */
static void catch_up(struct routers *r, int64_t now_ns)
{
	while (r->options->shared) {
		struct router *next = &r->items[0];

		for (uint32_t i = 1; i < r->options->count; i++)
			if (r->items[i].speaks_ns < next->speaks_ns)
				next = &r->items[i];
		if (next->speaks_ns > now_ns)
			return;
		exchange(r, next, next->speaks_ns);
		next->speaks_ns += r->options->interval_ns;
	}
}

/* --- the policy --- */

static void begin(struct routers *r, uint32_t number, const struct kvb_policy_env *env)
{
	struct router *router = &r->items[number];
	const struct kvb_routers *o = r->options;
	uint32_t workers = r->fleet->options.workers;
	struct kvb_policy_env own = *env;

	own.param = o->policy->param;
	router->policy = o->policy->ops->create(&own);
	router->replica = kvw_replica_create(number + 1, o->life_ns);
	router->workers = kvb_alloc(workers, sizeof(router->workers[0]));
	router->streams = kvb_alloc(workers, sizeof(router->streams[0]));
	if (router->replica == NULL)
		abort();
	for (uint32_t w = 0; w < workers; w++) {
		router->workers[w].id = w;
		router->workers[w].load = kvb_kvway_load(router->policy, w, &router->workers[w].key);
	}
	router->speaks_ns = 1 + o->interval_ns * number / o->count;
}

static void *create(const struct kvb_policy_env *env)
{
	struct routers *r = kvb_alloc(1, sizeof(*r));

	r->fleet = env->fleet;
	r->options = env->fleet->options.routers;
	assert(r->options != NULL && r->options->count >= 1 && r->options->count <= KVB_MOST_ROUTERS);
	r->text = kvb_alloc(KVW_LOAD_BYTES, 1);
	if (r->options->odd != KVB_PEER_NONE)
		r->odd = kvb_alloc(1, sizeof(*r->odd));
	for (uint32_t i = 0; i < r->options->count; i++)
		begin(r, i, env);
	return r;
}

static uint32_t pick(void *self, uint32_t job, int64_t now_ns)
{
	struct routers *r = self;

	catch_up(r, now_ns);
	return r->options->policy->ops->pick(router_of(r, job)->policy, job, now_ns);
}

static void first_token(void *self, uint32_t job, int64_t now_ns)
{
	struct routers *r = self;

	catch_up(r, now_ns);
	r->options->policy->ops->first_token(router_of(r, job)->policy, job, now_ns);
}

static void done(void *self, uint32_t job, int64_t now_ns)
{
	struct routers *r = self;

	catch_up(r, now_ns);
	r->options->policy->ops->done(router_of(r, job)->policy, job, now_ns);
}

static double foretold(void *self, uint32_t job)
{
	struct routers *r = self;

	return r->options->policy->ops->foretold(router_of(r, job)->policy, job);
}

static void destroy(void *self)
{
	struct routers *r = self;

	for (uint32_t i = 0; i < r->options->count; i++) {
		struct router *router = &r->items[i];

		r->options->policy->ops->destroy(router->policy);
		kvw_replica_destroy(router->replica);
		free(router->workers);
		free(router->streams);
		for (size_t s = 0; s < KEPT; s++)
			free(router->said[s].text);
	}
	free(r->odd);
	free(r->text);
	free(r);
}

const struct kvb_policy_ops kvb_routers_ops = {.create = create,
	.pick = pick,
	.first_token = first_token,
	.done = done,
	.foretold = foretold,
	.destroy = destroy};

/* --- the admission: its state is the policy's --- */

static void *gates_create(const struct kvb_admission_env *env)
{
	struct routers *r = env->policy_state;

	for (uint32_t i = 0; i < r->options->count; i++) {
		struct kvb_admission_env own = *env;

		own.policy = r->options->policy;
		own.policy_state = r->items[i].policy;
		r->items[i].gate = r->options->admission->ops->create(&own);
	}
	return r;
}

static void gates_arrive(void *self, uint32_t job, int64_t now_ns)
{
	struct routers *r = self;

	catch_up(r, now_ns);
	r->options->admission->ops->arrive(router_of(r, job)->gate, job, now_ns);
}

static enum kvb_word gates_next(void *self, int64_t now_ns, struct kvb_admission_answer *out)
{
	struct routers *r = self;

	catch_up(r, now_ns);
	for (uint32_t i = 0; i < r->options->count; i++) {
		enum kvb_word word = r->options->admission->ops->next(r->items[i].gate, now_ns, out);

		if (word != KVB_NOTHING)
			return word;
	}
	return KVB_NOTHING;
}

static int64_t gates_wake(void *self, int64_t now_ns)
{
	struct routers *r = self;
	int64_t first = INT64_MAX;

	for (uint32_t i = 0; i < r->options->count; i++) {
		int64_t wake = r->options->admission->ops->wake_ns(r->items[i].gate, now_ns);

		first = wake < first ? wake : first;
	}
	return first;
}

static void gates_sent(void *self, uint32_t job, int64_t now_ns)
{
	struct routers *r = self;

	r->options->admission->ops->sent(router_of(r, job)->gate, job, now_ns);
}

static void gates_token(void *self, uint32_t job, bool first, bool last, int64_t now_ns)
{
	struct routers *r = self;
	struct router *router = router_of(r, job);
	uint32_t *streams = &router->streams[r->fleet->courses[job].worker];

	if (first)
		++*streams;
	if (last)
		--*streams;
	r->options->admission->ops->token(router->gate, job, first, last, now_ns);
}

/* Reports tokens to each router's gate, of its own streams alone. */
static void gates_step(void *self, uint32_t worker, int64_t ns, uint32_t decoded, int64_t now_ns)
{
	struct routers *r = self;

	for (uint32_t i = 0; i < r->options->count; i++) {
		struct router *router = &r->items[i];
		uint32_t own = router->streams[worker] < decoded ? router->streams[worker] : decoded;

		if (own > 0)
			r->options->admission->ops->step(router->gate, worker, ns, own, now_ns);
	}
}

static void gates_destroy(void *self)
{
	struct routers *r = self;

	for (uint32_t i = 0; i < r->options->count; i++) {
		r->options->admission->ops->destroy(r->items[i].gate);
		r->items[i].gate = NULL;
	}
}

const struct kvb_admission_ops kvb_admission_routers_ops = {
	.create = gates_create,
	.arrive = gates_arrive,
	.next = gates_next,
	.wake_ns = gates_wake,
	.sent = gates_sent,
	.token = gates_token,
	.step = gates_step,
	.destroy = gates_destroy,
};
