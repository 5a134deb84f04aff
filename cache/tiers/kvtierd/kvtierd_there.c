/*
 * kvtierd_there.c - tests whether a node's daemon answers and its segment can be read. Called once,
 * when a cache is opened, before its tiers are created.
 */
#include <stdio.h>
#include <string.h>

#include "chunk/l2_url.h"
#include "tiers/kvtierd/kvtierd.h"
#include "tiers/tiers.h"

#define STEP_NS    10000000
#define STEPS_MOST 10000u /* bounds the loop if a simulated clock stands still */

struct question {
	struct kvtierd_exchange x;
	bool ended, well;
};

static void answered(struct kvtierd_exchange *x)
{
	struct question *q = x->user;

	q->ended = true;
	q->well = x->status == KVT_OK && x->answer->status == 200;
}

static bool ask(struct question *q, const struct kvtierd_place *place, struct kvtierd_http *http,
	const struct kvt_surroundings *s, uint64_t limit_ns)
{
	int n = snprintf(q->x.head, sizeof(q->x.head), "GET /health HTTP/1.1\r\nHost: %s\r\n\r\n",
		place->host);

	if (n <= 0 || (size_t)n >= sizeof(q->x.head))
		return false;
	q->x.head_len = (size_t)n;
	q->x.kind = KVTIERD_SHORT;
	q->x.deadline_ns = kvt_now(s) + (int64_t)limit_ns;
	q->x.done = answered;
	q->x.user = q;
	kvtierd_http_submit(http, &q->x);
	for (uint32_t i = 0; i < STEPS_MOST && !q->ended; i++) {
		int64_t next_ns = INT64_MAX;

		(void)kvtierd_http_step(http, STEP_NS, &next_ns);
	}
	return q->well;
}

bool kvt_node_segment(const char *name, char *why)
{
	struct kvtierd_segment segment;
	bool there = false;

	if (kvtierd_segment_init(&segment, name) != KVT_OK) {
		(void)snprintf(why, KVT_REASON_BYTES, "node.segment is no such name");
		return false;
	}
	there = kvtierd_segment_refresh(&segment) == KVT_OK;
	if (!there)
		(void)snprintf(why, KVT_REASON_BYTES, "%s", segment.why);
	kvtierd_segment_finish(&segment);
	return there;
}

bool kvt_node_answers(
	const struct kvt_config *config, const struct kvt_surroundings *surroundings, char *why)
{
	struct kvtierd_http_options options = {
		.surroundings = surroundings,
		.connections = 1,
		.connect_ns = config->l2_connect_ns,
		.answer_ns = config->l2_connect_ns,
	};
	struct kvtierd_resolver *resolver = NULL;
	struct kvtierd_http *http = NULL;
	struct question q = {.ended = false};
	struct kvtierd_http_stats stats;
	struct kvtierd_place place;
	struct kvt_l2_url url;

	(void)snprintf(why, KVT_REASON_BYTES, "node.url is not a kvtierd's");
	if (kvt_l2_url_parse(config->node_url, &url) != NULL || url.kind != KVT_L2_TIER_kvtierd ||
		kvtierd_place_init(&place, config->l2_bucket, url.at.nodes[0].host,
			url.at.nodes[0].port) != KVT_OK)
		return false;
	if (!kvt_node_segment(config->node_segment, why))
		return false;
	(void)snprintf(why, KVT_REASON_BYTES, "no memory");
	if (kvtierd_resolver_create(url.at.nodes[0].host, url.at.nodes[0].port, false, surroundings,
		    &resolver) == KVT_OK) {
		options.resolver = resolver;
		if (kvtierd_http_create(&options, &http) == KVT_OK &&
			!ask(&q, &place, http, surroundings, config->l2_connect_ns)) {
			kvtierd_http_stats(http, &stats);
			(void)snprintf(why, KVT_REASON_BYTES, "%s",
				stats.why[0] != '\0' ? stats.why : "it is not healthy");
		}
	}
	kvtierd_http_destroy(http);
	kvtierd_resolver_destroy(resolver);
	return q.well;
}
