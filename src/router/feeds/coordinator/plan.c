/*
 * plan.c - see plan.h.
 *
 * The lists are walked from the least recently used entry on. An entry that cannot be deleted now
 * goes to the list's end, so that pinned keys do not cost a walk each time. All walks of salts
 * together are bounded, and so is that of the shared pools; a salt whose walk ends at that bound is
 * the last one in the next plan, so that keys that cannot be deleted keep no other salt's from it.
 */
#include "feeds/coordinator/plan.h"

#include <string.h>

#include "feeds/coordinator/directory_parts.h"
#include "feeds/coordinator/pages.h"

#define WALK_MOST   100000u /* entries: of all salts, and again of the shared pools */
#define ANSWERS     2u      /* answered requests, before a placement is forgotten */
#define REST_NS     (INT64_C(1) * 1000000000)
#define REST_MOST   6u /* doublings of REST_NS, after as many failures in a row */
#define KEEP_FIFTHS 4u /* of a quota: what eviction leaves to its salt */

/* --- servers ---------------------------------------------------------------------------------- */

static bool is_usable(const struct kvw_cd_instance *instance, int64_t now_ns)
{
	return instance->registered && now_ns >= instance->rest_ns;
}

static bool has_usable(const struct kvw_cd *cd, int64_t now_ns)
{
	const struct kvw_cd_instance *at;

	TAILQ_FOREACH(at, &cd->instances, entry)
	if (is_usable(at, now_ns))
		return true;
	return false;
}

static const struct kvw_cd_module *declared_pool(
	const struct kvw_cd_instance *instance, uint8_t backend)
{
	for (uint32_t i = 0; i < instance->declared.count; i++) {
		const struct kvw_cd_module *module = &instance->declared.items[i];

		if (module->tier == KVW_CE_L2 && module->backend == backend && module->shared)
			return module;
	}
	return NULL;
}

/* Any usable server, best one that declares the pool. NULL: none. */
static struct kvw_cd_instance *any_server(const struct kvw_cd *cd, uint8_t backend, int64_t now_ns)
{
	struct kvw_cd_instance *at, *found = NULL;

	TAILQ_FOREACH(at, &cd->instances, entry)
	{
		if (!is_usable(at, now_ns))
			continue;
		if (declared_pool(at, backend) != NULL)
			return at;
		found = found == NULL ? at : found;
	}
	return found;
}

/* --- limits ----------------------------------------------------------------------------------- */

bool kvw_cd_limit_of(const struct kvw_cd *cd, const struct kvw_cd_salt *salt, uint64_t *bytes)
{
	*bytes = salt->limited ? salt->limit : cd->salts.default_limit;
	return salt->limited || cd->salts.has_default;
}

uint64_t kvw_cd_shared_bytes(const struct kvw_cd *cd)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < cd->pools.count; i++)
		if (cd->pools.items[i].tier == KVW_CE_L2)
			sum += cd->pools.items[i].bytes;
	return sum;
}

uint64_t kvw_cd_declared_cap(const struct kvw_cd *cd)
{
	const struct kvw_cd_instance *at;
	uint64_t sum = 0;

	for (uint32_t i = 0; i < cd->pools.count; i++) {
		uint64_t capacity = 0;

		if (cd->pools.items[i].tier != KVW_CE_L2 || cd->pools.items[i].bytes == 0)
			continue;
		TAILQ_FOREACH(at, &cd->instances, entry)
		{
			const struct kvw_cd_module *pool =
				declared_pool(at, cd->pools.items[i].backend);

			if (pool != NULL && capacity != 0 && pool->bytes != capacity)
				return 0;
			if (pool != NULL)
				capacity = pool->bytes;
		}
		if (capacity == 0)
			return 0;
		sum = capacity > UINT64_MAX - sum ? UINT64_MAX : sum + capacity;
	}
	return sum;
}

/* Bytes of the salt that are to go. */
static uint64_t excess_of(const struct kvw_cd *cd, struct kvw_cd_salt *salt)
{
	uint64_t used = salt->bytes[KVW_CE_L2] - salt->asked_bytes, limit, goal;

	if (used == 0 || !kvw_cd_limit_of(cd, salt, &limit)) {
		salt->draining = false;
		return 0;
	}
	goal = limit / 5 * KEEP_FIFTHS;
	if (used >= limit)
		salt->draining = true;
	else if (used <= goal)
		salt->draining = false;
	return salt->draining ? used - goal : 0;
}

static uint64_t excess_of_pools(struct kvw_cd *cd, uint64_t cap)
{
	uint64_t used = kvw_cd_shared_bytes(cd) - cd->salts.asked_shared, goal = cap / 10 * 8;

	if (cap == 0 || used <= goal)
		cd->salts.draining = false;
	else if (used >= cap / 10 * 9)
		cd->salts.draining = true;
	return cd->salts.draining ? used - goal : 0;
}

/* --- the plan --------------------------------------------------------------------------------- */

struct planning {
	struct kvw_cd *cd;
	struct kvw_cd_plan *plan;
	int64_t now_ns;
	uint8_t backend;          /* of the plan, once it has a server */
	size_t steps, steps_most; /* entries that were looked at; that may be */
};

/* The placement to delete; NULL: none. *later: another plan can delete one. */
static struct kvw_cd_placement *victim_of(struct planning *planning,
	const struct kvw_cd_object *object, bool shared_only, bool *later)
{
	struct kvw_cd_plan *plan = planning->plan;
	struct kvw_cd_placement *at;

	*later = false;
	STAILQ_FOREACH(at, &object->placements, entry)
	{
		struct kvw_cd_instance *server = at->instance;

		if (at->tier != KVW_CE_L2 || (shared_only && !at->shared))
			continue;
		if (at->shared && (!is_usable(server, planning->now_ns) || plan->server != NULL))
			server = plan->server != NULL
					 ? plan->server
					 : any_server(planning->cd, at->backend, planning->now_ns);
		if (server == NULL || !is_usable(server, planning->now_ns))
			continue;
		if (plan->server == NULL) {
			plan->server = server;
			plan->backend = planning->cd->backends[at->backend];
			planning->backend = at->backend;
		}
		if (server == plan->server && at->backend == planning->backend)
			return at;
		*later = true;
	}
	return NULL;
}

static void take(struct planning *planning, struct kvw_cd_placement *placement)
{
	struct kvw_ce_key key = kvw_cd_key_of(placement->object);
	struct kvw_cd_plan *plan = planning->plan;

	kvw_page_string(&plan->body, plan->keys == 0 ? "{\"keys\":[" : ",");
	kvw_cd_page_key(&plan->body, &key);
	plan->keys++;
	plan->bytes += placement->size_bytes;
	kvw_cd_l2_ask(planning->cd, placement, planning->now_ns);
}

/* Whether the walk ends here: enough, the request is full, or the walk is long. */
static bool is_over(struct planning *planning, uint64_t taken, uint64_t excess)
{
	return taken >= excess || planning->plan->keys == KVW_CD_PLAN_KEYS ||
	       ++planning->steps > planning->steps_most;
}

/* Takes `excess` bytes of the salt, or of the shared pools (salt NULL). */
static void collect(struct planning *planning, struct kvw_cd_salt *salt, uint64_t excess)
{
	struct kvw_cd *cd = planning->cd;
	struct kvw_cd_l2 *at = salt != NULL ? TAILQ_FIRST(&salt->l2) : TAILQ_FIRST(&cd->salts.all);
	struct kvw_cd_l2 *next, *turned = NULL; /* the first one that was put to the end */
	uint64_t before = planning->plan->bytes;

	for (; at != NULL && at != turned; at = next) {
		struct kvw_ce_key key = kvw_cd_key_of(at->object);
		struct kvw_cd_placement *placement = NULL;
		bool later = false;

		if (is_over(planning, planning->plan->bytes - before, excess))
			return;
		next = salt != NULL ? TAILQ_NEXT(at, of_salt) : TAILQ_NEXT(at, of_all);
		if (!kvw_cd_is_pinned(cd, &key))
			placement = victim_of(planning, at->object, salt == NULL, &later);
		if (placement != NULL) {
			take(planning, placement);
		} else if (!later) {
			turned = turned == NULL ? at : turned;
			kvw_cd_l2_turn(cd, at, salt != NULL);
			next = next == NULL ? at : next;
		}
	}
}

static void collect_of_salts(struct planning *planning)
{
	struct kvw_cd_salts *salts = &planning->cd->salts;
	struct kvw_cd_salt *salt;

	planning->steps_most = WALK_MOST;
	TAILQ_FOREACH(salt, &salts->list, entry)
	{
		uint64_t excess = excess_of(planning->cd, salt);

		if (excess > 0)
			collect(planning, salt, excess);
		if (planning->steps > planning->steps_most) {
			TAILQ_REMOVE(&salts->list, salt, entry);
			TAILQ_INSERT_TAIL(&salts->list, salt, entry);
			return;
		}
	}
}

/* Deletions that no event has confirmed in time. */
static void expire(struct kvw_cd *cd, int64_t now_ns)
{
	struct kvw_cd_l2 *l2;

	while ((l2 = TAILQ_FIRST(&cd->salts.asked)) != NULL &&
		now_ns - l2->asked_ns > KVW_CD_PLAN_AGAIN) {
		struct kvw_cd_placement *placement = l2->asked;
		struct kvw_cd_instance *reporter = placement->instance;
		bool forgotten = l2->answers >= ANSWERS;

		kvw_cd_l2_unask(cd, l2);
		if (!forgotten)
			continue;
		cd->counts.forgotten++;
		kvw_cd_remove_placement(cd, placement);
		kvw_cd_settle(cd, reporter);
	}
}

bool kvw_cd_plan(struct kvw_cd *cd, uint64_t cap, int64_t now_ns, struct kvw_cd_plan *plan)
{
	struct planning planning = {.cd = cd, .plan = plan, .now_ns = now_ns};
	uint64_t excess;

	*plan = (struct kvw_cd_plan){.number = ++cd->salts.plan};
	expire(cd, now_ns);
	if (!has_usable(cd, now_ns))
		return false;
	if (cd->salts.has_default || cd->salts.limited > 0)
		collect_of_salts(&planning);
	planning.steps_most = planning.steps + WALK_MOST;
	excess = excess_of_pools(cd, cap);
	if (excess > 0)
		collect(&planning, NULL, excess);
	plan->in_vain = plan->keys == 0 && planning.steps > 0;
	if (plan->keys == 0)
		return false;
	kvw_cd_put(&plan->body, "],'tier':'l2','adapter':%s}", plan->backend);
	return true;
}

void kvw_cd_plan_answered(struct kvw_cd *cd, uint64_t number)
{
	struct kvw_cd_l2 *l2;

	TAILQ_FOREACH_REVERSE(l2, &cd->salts.asked, kvw_cd_l2_list, of_all)
	{
		if (l2->plan < number) /* plans stand there one after the other */
			return;
		if (l2->plan == number)
			l2->answers++;
	}
}

void kvw_cd_plan_failed(
	struct kvw_cd *cd, uint64_t number, struct kvw_cd_instance *server, int64_t now_ns)
{
	struct kvw_cd_l2 *l2, *before;

	for (l2 = TAILQ_LAST(&cd->salts.asked, kvw_cd_l2_list); l2 != NULL; l2 = before) {
		before = TAILQ_PREV(l2, kvw_cd_l2_list, of_all);
		if (l2->plan == number)
			kvw_cd_l2_unask(cd, l2);
	}
	if (server == NULL)
		return;
	server->rest_ns =
		now_ns + (REST_NS << (server->failures < REST_MOST ? server->failures : REST_MOST));
	server->failures++;
}
