/*
 * evict.c - sends the plans of plan.h: one request at a time, again elsewhere after a failure.
 *
 * A plan is made after each report of a server, at each tick and after each answer, so what is
 * written between two of them is what a quota is exceeded by. While a request runs, nothing else is
 * planned: what it deletes counts as gone, and a server answers within 30 s or fails.
 */
#include <jansson.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/duty.h"
#include "base/log.h"
#include "feeds/coordinator/parts.h"
#include "feeds/coordinator/plan.h"

#define COMPLAIN_NS (10 * KVW_NS_PER_S)
#define VAIN_NS     KVW_NS_PER_S /* after a search without a result, which may have been long */

uint64_t kvw_coordinator_cap(const struct kvw_coordinator *coordinator)
{
	uint64_t cap = coordinator->deps->config->kvaware_lmcache_l2_size;

	return cap > 0 ? cap : kvw_cd_declared_cap(coordinator->cd);
}

bool kvw_coordinator_evicts(const struct kvw_coordinator *coordinator)
{
	return coordinator->in_charge && coordinator->deps->config->kvaware_lmcache_l2_evict &&
	       !kvw_duty_elsewhere(
		       coordinator->deps->coordinating, kvw_feed_now(coordinator->feed));
}

static bool is_done(long status, struct kvw_slice answer)
{
	json_t *object = status == 200 ? json_loadb(answer.data, answer.len, 0, NULL) : NULL;
	bool done = json_is_object(object) && !json_is_false(json_object_get(object, "ok"));

	json_decref(object);
	return done;
}

static void fail(struct kvw_coordinator *coordinator, long status, struct kvw_slice answer)
{
	struct kvw_coordinator_evict *evict = &coordinator->evict;
	int64_t now_ns = kvw_feed_now(coordinator->feed);

	evict->failures++;
	kvw_cd_plan_failed(coordinator->cd, evict->plan,
		kvw_cd_find_instance(coordinator->cd, kvw_slice_of(evict->server)), now_ns);
	if (evict->complained_ns != 0 && now_ns - evict->complained_ns < COMPLAIN_NS)
		return;
	evict->complained_ns = now_ns;
	kvw_warn("coordinator",
		"instance=%s did not delete from L2 status=%ld answer=\"%.*s\": trying again",
		evict->server, status, (int)(answer.len < 200 ? answer.len : 200), answer.data);
}

/* Another plan follows at once: the rest, or the same keys at another server. */
static void on_deleted(void *ctx, long status, struct kvw_slice answer)
{
	struct kvw_coordinator *coordinator = ctx;
	struct kvw_coordinator_evict *evict = &coordinator->evict;
	struct kvw_cd_instance *server =
		kvw_cd_find_instance(coordinator->cd, kvw_slice_of(evict->server));

	evict->busy = false;
	if (is_done(status, answer)) {
		kvw_cd_plan_answered(coordinator->cd, evict->plan);
		if (server != NULL)
			server->failures = 0;
	} else {
		fail(coordinator, status, answer);
	}
	kvw_coordinator_evict(coordinator);
}

void kvw_coordinator_evict(struct kvw_coordinator *coordinator)
{
	struct kvw_coordinator_evict *evict = &coordinator->evict;
	int64_t now_ns = kvw_feed_now(coordinator->feed);
	struct kvw_cd_plan plan;
	enum kvw_err err;

	if (evict->busy || now_ns < evict->rest_ns || !kvw_coordinator_evicts(coordinator))
		return;
	if (!kvw_cd_plan(coordinator->cd, kvw_coordinator_cap(coordinator), now_ns, &plan)) {
		if (plan.in_vain)
			evict->rest_ns = now_ns + VAIN_NS;
		return;
	}
	evict->plan = plan.number;
	(void)snprintf(evict->server, sizeof(evict->server), "%s", plan.server->id);
	err = kvw_calls_start(&coordinator->calls, &(struct kvw_call_options){.server = plan.server,
							   .method = "DELETE",
							   .path = "/cache/objects",
							   .body = &plan.body,
							   .done = on_deleted,
							   .ctx = coordinator,
							   .duty = true});
	evict->requests++;
	evict->busy = err == KVW_OK;
	if (err != KVW_OK)
		fail(coordinator, 0,
			err == KVW_EINVAL ? KVW_SLICE("its address is none")
					  : KVW_SLICE("the request could not be made"));
	else
		kvw_debug("coordinator", "evicts instance=%s keys=%zu bytes=%llu", evict->server,
			plan.keys, (unsigned long long)plan.bytes);
}
