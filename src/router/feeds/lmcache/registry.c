/*
 * registry.c - adds and removes instances and ranks, and passes messages on to them.
 */
#include "feeds/lmcache/registry.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/clock.h"
#include "base/log.h"

/* when the thread was stopped for longer than this, heartbeats do not count as overdue */
#define TICK_LATE_NS (2 * KVW_NS_PER_S)
#define EARLY_NS     (30 * KVW_NS_PER_S)

const char *kvw_lmcache_refusal_name(enum kvw_lmcache_refusal refusal)
{
	static const char *const names[KVW_LMCACHE_REFUSALS] = {"malformed", "too_large",
		"unknown_type", "envelope", "misplaced", "stale", "no_room"};

	return names[refusal];
}

const char *kvw_lmcache_type_name(enum kvw_lmc_type type)
{
	static const char *const names[KVW_LMC_TYPE_COUNT] = {"register", "heartbeat", "deregister",
		"operations", "p2p_lookup", "sync_start", "sync_batch", "sync_end", "sync_status"};

	return names[type];
}

enum kvw_err kvw_lmreg_create(const struct kvw_lmreg_options *options, struct kvw_lmreg **out)
{
	struct kvw_lmreg *reg = calloc(1, sizeof(*reg));

	if (reg == NULL)
		return KVW_ENOMEM;
	reg->options = *options;
	reg->recalled.rank = KVW_LMREG_NONE;
	reg->by_worker = calloc(options->worker_count + 1, sizeof(reg->by_worker[0]));
	reg->missing = calloc(KVW_LMREG_MISSING, sizeof(reg->missing[0]));
	if (reg->by_worker == NULL || reg->missing == NULL) {
		kvw_lmreg_destroy(reg);
		return KVW_ENOMEM;
	}
	*out = reg;
	return KVW_OK;
}

static void free_rank(struct kvw_lmreg_rank *rank)
{
	kvw_lmreg_sync_drop(rank);
	for (uint32_t i = 0; i < rank->place_count; i++) {
		kvw_keyset_clear(&rank->places[i].keys);
		free(rank->places[i].name);
	}
	free(rank->ip);
	free(rank->p2p);
}

static void free_instance(struct kvw_lmreg_instance *instance)
{
	for (uint32_t i = 0; i < instance->rank_count; i++)
		free_rank(&instance->ranks[i]);
	free(instance->ranks);
	free(instance->recent);
	free(instance->id);
	free(instance);
}

void kvw_lmreg_destroy(struct kvw_lmreg *reg)
{
	if (reg == NULL)
		return;
	for (size_t i = 0; i < reg->count; i++)
		free_instance(reg->instances[i]);
	free(reg->instances);
	free(reg->missing);
	free(reg->by_worker);
	free(reg);
}

/* --- instances --- */

void kvw_lmreg_forget_instance(struct kvw_lmreg *reg, struct kvw_lmreg_instance *instance)
{
	size_t at = 0;

	while (reg->instances[at] != instance)
		at++;
	kvw_info("lmcache", "forgotten instance=%s", instance->id);
	if (reg->recalled.instance == instance)
		reg->recalled.instance = NULL;
	kvw_lmreg_unmap(reg, instance);
	for (uint32_t i = 0; i < instance->rank_count; i++)
		reg->stats.keys -= kvw_lmreg_key_count(&instance->ranks[i]);
	reg->instances[at] = reg->instances[--reg->count];
	free_instance(instance);
}

/* Makes room by forgetting the unmapped instance that has been silent for longest. False: there is
 * none. */
static bool make_room(struct kvw_lmreg *reg)
{
	struct kvw_lmreg_instance *oldest = NULL;

	for (size_t i = 0; i < reg->count; i++)
		if (reg->instances[i]->worker == KVW_LMREG_NONE &&
			(oldest == NULL || reg->instances[i]->heard_ns < oldest->heard_ns))
			oldest = reg->instances[i];
	if (oldest != NULL)
		kvw_lmreg_forget_instance(reg, oldest);
	return oldest != NULL;
}

struct kvw_lmreg_instance *kvw_lmreg_add_instance(struct kvw_lmreg *reg, struct kvw_slice id)
{
	struct kvw_lmreg_instance *instance;

	if (reg->count == KVW_LMREG_INSTANCES && !make_room(reg))
		return NULL;
	if (reg->count == reg->room) {
		size_t room = reg->room == 0 ? 16 : reg->room * 2;
		void *wider = realloc(reg->instances, room * sizeof(reg->instances[0]));

		if (wider == NULL)
			return NULL;
		reg->instances = wider;
		reg->room = room;
	}
	instance = calloc(1, sizeof(*instance));
	if (instance == NULL)
		return NULL;
	instance->id = strndup(id.data, id.len);
	if (instance->id == NULL) {
		free(instance);
		return NULL;
	}
	instance->hash = XXH3_64bits_withSeed(id.data, id.len, reg->options.seed);
	instance->worker = instance->hint_worker = KVW_LMREG_NONE;
	instance->space = reg->options.space;
	reg->instances[reg->count++] = instance;
	return instance;
}

/* --- ranks --- */

static struct kvw_lmreg_rank *find_rank(struct kvw_lmreg_instance *instance, uint32_t id)
{
	for (uint32_t i = 0; i < instance->rank_count; i++)
		if (instance->ranks[i].id == id)
			return &instance->ranks[i];
	return NULL;
}

struct kvw_lmreg_rank *kvw_lmreg_add_rank(
	struct kvw_lmreg *reg, struct kvw_lmreg_instance *instance, uint32_t id)
{
	struct kvw_lmreg_rank *rank;
	void *wider;

	if (instance->rank_count == KVW_LMREG_RANKS)
		return NULL;
	wider = realloc(instance->ranks, (instance->rank_count + 1) * sizeof(*rank));
	if (wider == NULL)
		return NULL;
	instance->ranks = wider;
	rank = &instance->ranks[instance->rank_count];
	*rank = (struct kvw_lmreg_rank){.id = id, .source = KVW_LMREG_NONE};
	if (instance->rank_count < KVW_EXACT_LMCACHE_SOURCES)
		rank->source = KVW_EXACT_LMCACHE_SOURCE + instance->rank_count;
	else if (instance->rank_count == KVW_EXACT_LMCACHE_SOURCES)
		kvw_warn("lmcache",
			"instance=%s has more than %u ranks: the first ones speak for "
			"all",
			instance->id, KVW_EXACT_LMCACHE_SOURCES);
	instance->rank_count++;
	kvw_lmreg_require(reg, instance);
	return rank;
}

/* Replaces a text. False: out of memory, and the old text stays. */
static bool set_text(char **text, struct kvw_slice value)
{
	char *copy = value.len > 0 ? strndup(value.data, value.len) : NULL;

	if (value.len > 0 && copy == NULL)
		return false;
	free(*text);
	*text = copy;
	return true;
}

static bool alive(const struct kvw_lmreg_instance *instance)
{
	for (uint32_t i = 0; i < instance->rank_count; i++)
		if (!instance->ranks[i].gone)
			return true;
	return false;
}

/* Removes a rank. True: its last rank, and so the instance, is gone; neither may be used any
 * longer. */
static bool lose_rank(
	struct kvw_lmreg *reg, struct kvw_lmreg_instance *instance, struct kvw_lmreg_rank *rank)
{
	kvw_lmreg_clear_rank(reg, instance, rank);
	rank->gone = true;
	rank->announced = rank->beats = rank->answers = rank->whole = false;
	rank->want = NULL;
	rank->asked_ns = 0;
	if (!alive(instance)) {
		kvw_lmreg_forget_instance(reg, instance);
		return true;
	}
	kvw_lmreg_update_coverage(reg, instance);
	return false;
}

/* Removes another instance that was registered at this address, since a port has one owner. Only a
 * registration does this, which a process sends once: with ambiguous addresses (containers of two
 * hosts that are both 172.17.0.2), two instances would otherwise remove each other with every
 * heartbeat. */
static void displace(struct kvw_lmreg *reg, const struct kvw_lmreg_instance *instance,
	const struct kvw_lmc_message *message)
{
	for (size_t i = reg->count; i-- > 0;) {
		struct kvw_lmreg_instance *other = reg->instances[i];

		for (uint32_t r = 0; other != instance && r < other->rank_count; r++) {
			struct kvw_lmreg_rank *rank = &other->ranks[r];

			if (rank->gone || rank->ip == NULL || rank->port != message->port ||
				!kvw_slice_equal(kvw_slice_of(rank->ip), message->ip))
				continue;
			kvw_info("lmcache", "instance=%s takes the place of instance=%s",
				instance->id, other->id);
			if (lose_rank(reg, other, rank))
				break;
		}
	}
}

/* Stores the members of a registration or heartbeat in a rank. */
static void announce(struct kvw_lmreg *reg, struct kvw_lmreg_instance *instance,
	struct kvw_lmreg_rank *rank, const struct kvw_lmreg_request *request)
{
	const struct kvw_lmc_message *message = request->message;
	bool first = true;

	if (!set_text(&rank->ip, message->ip) || !set_text(&rank->p2p, message->p2p))
		reg->stats.refused[KVW_LMCACHE_NO_ROOM]++;
	rank->port = message->port;
	rank->announced = true;
	rank->gone = false;
	rank->registered_ns = request->now_ns;
	reg->stats.registered++;
	if (message->type == KVW_LMC_REGISTER)
		displace(reg, instance, message);
	kvw_lmreg_try_map(reg, instance);
	for (uint32_t i = 0; i < instance->rank_count; i++)
		first = first && (&instance->ranks[i] == rank || !instance->ranks[i].announced);
	if (first)
		kvw_info("lmcache", "Worker registered: %s", instance->id);
	kvw_debug("lmcache", "registered instance=%s rank=%u at=%s:%u", instance->id, rank->id,
		rank->ip != NULL ? rank->ip : "", rank->port);
}

/* --- messages --- */

static void on_register(struct kvw_lmreg *reg, struct kvw_lmreg_instance *instance,
	struct kvw_lmreg_rank *rank, const struct kvw_lmreg_request *request,
	struct kvw_mp_out *reply)
{
	/* The rank's first operations may have come earlier, on the other socket. */
	bool heard_all = !rank->announced && rank->whole && !rank->gone &&
			 request->now_ns - rank->heard_ns < EARLY_NS;

	if (!heard_all)
		kvw_lmreg_clear_rank(reg, instance, rank);
	rank->announced = rank->beats = rank->answers = false;
	rank->want = NULL;
	rank->asked_ns = 0;
	rank->whole = true;
	for (uint32_t i = 0; !heard_all && i < rank->place_count; i++) {
		rank->places[i].expects = true;
		rank->places[i].next = 0;
	}
	instance->matched = instance->missed = 0;
	instance->doubted = instance->warned = false;
	announce(reg, instance, rank, request);
	kvw_lmc_put_registered(reply, request->heartbeat_url);
}

static void on_heartbeat(struct kvw_lmreg *reg, struct kvw_lmreg_instance *instance,
	struct kvw_lmreg_rank *rank, const struct kvw_lmreg_request *request,
	struct kvw_mp_out *reply)
{
	const char *reason = NULL;

	if (!rank->announced) {
		/* the rank had contents before, which this process did not hear of */
		if (!rank->whole)
			kvw_lmreg_want_sync(rank, "controller_restart");
		announce(reg, instance, rank, request);
	}
	rank->beats = true;
	rank->answers = rank->answers || request->answered;
	rank->beat_ns = request->now_ns;
	if (request->answered)
		reason = kvw_lmreg_sync_reason(reg, rank, request->now_ns);
	kvw_lmc_put_heartbeat(reply, kvw_slice_of(reason));
}

/* Handles a message of a rank. Returns false if the instance was forgotten. */
static bool handle(struct kvw_lmreg *reg, struct kvw_lmreg_instance *instance,
	struct kvw_lmreg_rank *rank, const struct kvw_lmreg_request *request,
	struct kvw_mp_out *reply)
{
	switch (request->message->type) {
	case KVW_LMC_REGISTER:
		on_register(reg, instance, rank, request, reply);
		break;
	case KVW_LMC_HEARTBEAT:
		on_heartbeat(reg, instance, rank, request, reply);
		break;
	case KVW_LMC_DEREGISTER:
		reg->stats.deregistered++;
		return !lose_rank(reg, instance, rank);
	case KVW_LMC_OPERATIONS:
		kvw_lmreg_operations(reg, instance, rank, request);
		break;
	case KVW_LMC_SYNC_START:
		kvw_lmreg_sync_start(reg, instance, rank, request, reply);
		break;
	case KVW_LMC_SYNC_BATCH:
		kvw_lmreg_sync_batch(reg, instance, rank, request);
		break;
	case KVW_LMC_SYNC_END:
		kvw_lmreg_sync_end(reg, rank, request);
		break;
	default:
		break;
	}
	return true;
}

/* Answers a question that concerns no rank of the registry. True: the message was such a
 * question. */
static bool answer_question(
	struct kvw_lmreg *reg, const struct kvw_lmreg_request *request, struct kvw_mp_out *reply)
{
	static const struct kvw_lmreg_rank nobody = {0};
	const struct kvw_lmc_message *message = request->message;
	struct kvw_lmreg_instance *instance;
	const struct kvw_lmreg_rank *rank = NULL;
	struct kvw_lmc_holder holder;

	if (message->type == KVW_LMC_P2P_LOOKUP) {
		bool found = kvw_lmreg_p2p(reg, message, &holder);

		reg->stats.p2p_hits += found;
		kvw_lmc_put_p2p(reply, found ? &holder : NULL);
		return true;
	}
	if (message->type != KVW_LMC_SYNC_STATUS)
		return false;
	instance = kvw_lmreg_find(reg, message->instance_id);
	if (instance != NULL)
		rank = find_rank(instance, message->worker_id);
	kvw_lmreg_sync_status(reg, rank != NULL ? rank : &nobody, request, reply);
	return true;
}

/* Returns whether this type may come on this kind of socket. Up to 0.3.11 registrations and
 * heartbeats came on the pull socket. */
static bool belongs(enum kvw_lmc_type type, bool answered)
{
	switch (type) {
	case KVW_LMC_REGISTER:
	case KVW_LMC_HEARTBEAT:
		return true;
	case KVW_LMC_DEREGISTER:
	case KVW_LMC_OPERATIONS:
	case KVW_LMC_SYNC_BATCH:
	case KVW_LMC_SYNC_END:
		return !answered;
	case KVW_LMC_P2P_LOOKUP:
	case KVW_LMC_SYNC_START:
	case KVW_LMC_SYNC_STATUS:
		return answered;
	default:
		return false;
	}
}

/* Returns whether a message of this type adds its rank if it is unknown. */
static bool introduces(enum kvw_lmc_type type)
{
	return type == KVW_LMC_REGISTER || type == KVW_LMC_HEARTBEAT ||
	       type == KVW_LMC_OPERATIONS || type == KVW_LMC_SYNC_START;
}

void kvw_lmreg_message(
	struct kvw_lmreg *reg, const struct kvw_lmreg_request *request, struct kvw_mp_out *reply)
{
	const struct kvw_lmc_message *message = request->message;
	struct kvw_lmreg_instance *instance;
	struct kvw_lmreg_rank *rank = NULL;
	bool created;

	if (!belongs(message->type, request->answered)) {
		reg->stats.refused[KVW_LMCACHE_MISPLACED]++;
		kvw_lmc_put_error(reply, KVW_SLICE("a message of this type does not belong here"));
		return;
	}
	reg->stats.messages[message->type]++;
	if (answer_question(reg, request, reply))
		return;
	instance = kvw_lmreg_find(reg, message->instance_id);
	created = instance == NULL && introduces(message->type);
	if (created)
		instance = kvw_lmreg_add_instance(reg, message->instance_id);
	if (instance != NULL)
		rank = find_rank(instance, message->worker_id);
	if (instance != NULL && rank == NULL && introduces(message->type))
		rank = kvw_lmreg_add_rank(reg, instance, message->worker_id);
	if (rank == NULL) {
		if (introduces(message->type)) {
			reg->stats.refused[KVW_LMCACHE_NO_ROOM]++;
			kvw_lmc_put_error(reply, KVW_SLICE("no room for another worker"));
		} else if (message->type != KVW_LMC_DEREGISTER) {
			reg->stats.refused[KVW_LMCACHE_STALE]++;
		}
		if (created && instance != NULL)
			kvw_lmreg_forget_instance(reg, instance);
		return;
	}
	if (message->type != KVW_LMC_DEREGISTER)
		rank->gone = false;
	if (!handle(reg, instance, rank, request, reply))
		return;
	/* the array may have moved, so that the rank is found again */
	rank = find_rank(instance, message->worker_id);
	rank->heard_ns = instance->heard_ns = request->now_ns;
	if (created)
		kvw_lmreg_try_map(reg, instance);
	kvw_lmreg_update_coverage(reg, instance);
}

/* --- time --- */

static void tick_instance(
	struct kvw_lmreg *reg, struct kvw_lmreg_instance *instance, int64_t now_ns, bool late)
{
	int64_t timeout_ns = reg->options.timeout_ns;

	for (uint32_t r = 0; r < instance->rank_count; r++) {
		struct kvw_lmreg_rank *rank = &instance->ranks[r];

		if (rank->gone)
			continue;
		if (late && now_ns > rank->heard_ns)
			rank->heard_ns = now_ns;
		if (rank->beats && now_ns - rank->heard_ns > timeout_ns) {
			reg->stats.timeouts++;
			kvw_warn("lmcache", "silent instance=%s rank=%u for_ms=%" PRId64,
				instance->id, rank->id, (now_ns - rank->heard_ns) / KVW_NS_PER_MS);
			if (lose_rank(reg, instance, rank))
				return;
			continue;
		}
		kvw_lmreg_sync_tick(reg, instance, rank, now_ns);
	}
	kvw_lmreg_try_map(reg, instance);
	kvw_lmreg_update_coverage(reg, instance);
}

void kvw_lmreg_tick(struct kvw_lmreg *reg, int64_t now_ns)
{
	bool late = reg->ticked_ns != 0 && now_ns - reg->ticked_ns > TICK_LATE_NS;

	/* From the end, since an instance that is forgotten is replaced by the last one. */
	for (size_t i = reg->count; i-- > 0;)
		tick_instance(reg, reg->instances[i], now_ns, late);
	reg->ticked_ns = now_ns;
}

void kvw_lmreg_worker_down(struct kvw_lmreg *reg, uint32_t worker, int64_t up_ns)
{
	struct kvw_lmreg_instance *instance =
		worker < reg->options.worker_count ? reg->by_worker[worker] : NULL;
	bool forgotten = false;

	for (uint32_t r = 0; instance != NULL && !forgotten && r < instance->rank_count; r++) {
		struct kvw_lmreg_rank *rank = &instance->ranks[r];

		if (rank->gone || rank->registered_ns > up_ns)
			continue;
		kvw_warn("lmcache", "instance=%s rank=%u forgotten: worker=%u refuses connections",
			instance->id, rank->id, worker);
		forgotten = lose_rank(reg, instance, rank);
	}
	reg->stats.lost += forgotten;
}
