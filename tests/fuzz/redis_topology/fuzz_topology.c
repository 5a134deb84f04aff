/*
 * fuzz_topology.c - any answers of servers, in any order, to a client of a Cluster or of Sentinels.
 *
 * The first byte chooses the topology. Then come steps, one byte each and what it needs: time
 * passes, a command asks for its way, servers go down and come up, a reply (RESP, read by the
 * client's own parser) answers the question under way, an error's text comes back with a command.
 *
 * Checked: commands only go to servers that exist, of which there are never more than a table may
 * hold; what is not understood is the caller's to read; nothing leaks (by the sanitizer), and the
 * fake client aborts where a topology uses what it gave away.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/common/redis/fake_client.h"
#include "redis/resp.h"
#include "redis/slots.h"

#define STEPS_MAX     400
#define ELEMENT_LIMIT (1 << 16)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
	const uint8_t *data;
	size_t left;
};

static void require(bool holds)
{
	if (!holds)
		abort();
}

static uint8_t take(struct input *in)
{
	if (in->left == 0)
		return 0;
	in->left--;
	return *in->data++;
}

/* Answers the question with the reply that comes next; a broken or unfinished one is no answer. */
static void answer(struct kvw_redis *r, struct input *in)
{
	struct kvw_redis_command c = {.elements = true, .element_limit = ELEMENT_LIMIT};
	struct kvw_redis_resp p = {0};
	size_t used = 0;
	enum kvw_redis_resp_state state;

	kvw_redis_resp_begin(&p, &c);
	state = kvw_redis_resp_feed(&p, (const char *)in->data, in->left, &used);
	in->data += used;
	in->left -= used;
	if (state == KVW_REDIS_RESP_DONE && c.status == KVW_OK && c.reply == KVW_REDIS_ARRAY) {
		fake_answer_elements(r, c.found, c.element_count);
		return;
	}
	if (state == KVW_REDIS_RESP_DONE && c.reply == KVW_REDIS_ERROR) {
		fake_answer_error(r, c.text);
	} else if (state == KVW_REDIS_RESP_DONE && c.reply == KVW_REDIS_NIL) {
		fake_answer_nil(r);
	} else {
		kvw_redis_resp_abandon(&p);
		fake_answer_none(r, KVW_EIO, "broken");
	}
	kvw_redis_elements_free(c.found, c.element_count);
}

/* A line of the input is an error's text. */
static void error(struct kvw_redis_topology *t, struct kvw_redis_server *server, struct input *in)
{
	struct kvw_redis_command command = {.progress.redirects = take(in) % 32};
	const uint8_t *end = in->left > 0 ? memchr(in->data, '\n', in->left) : NULL;
	size_t len = end != NULL ? (size_t)(end - in->data) : in->left;

	snprintf(command.text, sizeof(command.text), "%.*s", (int)len, (const char *)in->data);
	in->data += len;
	in->left -= len;
	if (t->ops->error(t, &command, server) == KVW_REDIS_VERDICT_DELIVER)
		require(command.progress.to == NULL && !command.progress.asking);
	require(command.progress.to == NULL || command.progress.to->alive);
}

static void one_step(struct kvw_redis *r, struct kvw_redis_topology *t, struct input *in)
{
	uint8_t kind = take(in), how = kind >> 3;
	struct kvw_redis_command command = {.slot = (uint32_t)how << 9 | take(in)};
	struct kvw_redis_server *server = NULL;
	const char *why = "";
	enum kvw_redis_route route = t->ops->route(t, &command, &server, &why);

	require(route != KVW_REDIS_ROUTE_TO || (server != NULL && server->alive));
	switch (kind % 8) {
	case 0:
	case 1:
		fake_step(r, t, how * 100 * MS);
		break;
	case 2:
	case 3:
		if (r->asked != NULL)
			answer(r, in);
		fake_step(r, t, 0);
		break;
	case 4:
		if (r->asked != NULL)
			fake_answer_none(r, KVW_ETIMEDOUT, "");
		break;
	case 5:
		if (route == KVW_REDIS_ROUTE_TO)
			error(t, server, in);
		break;
	case 6:
		if (route == KVW_REDIS_ROUTE_TO)
			(void)t->ops->down(t, server, "gone");
		break;
	default:
		if (route == KVW_REDIS_ROUTE_TO) {
			server->ready = how % 2;
			t->ops->up(t, server);
		}
	}
	require(fake_alive(r) <= KVW_REDIS_SERVERS + 4);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const urls[] = {
		"redis-cluster://a:1,b:2", "redis-sentinel://a:1,b:2,c:3"};
	struct input in = {data, size};
	bool sentinel = take(&in) % 2 != 0;
	struct kvw_redis *r = calloc(1, sizeof(*r));
	struct kvw_redis_url *url = calloc(1, sizeof(*url));
	struct kvw_redis_options options = {
		.url = url, .service = "redismaster", .connect_ns = 500 * MS};
	const struct kvw_redis_topology_ops *ops =
		sentinel ? &kvw_redis_topology_sentinel : &kvw_redis_topology_cluster;
	struct kvw_redis_topology *t = NULL;

	require(r != NULL && url != NULL);
	fake_init(r);
	require(kvw_redis_url_parse(urls[sentinel], url) == NULL);
	require(ops->create(r, &options, &t) == KVW_OK);
	for (size_t i = 0; i < STEPS_MAX && in.left > 0; i++)
		one_step(r, t, &in);
	if (r->asked != NULL)
		fake_answer_none(r, KVW_ECLOSED, "");
	t->ops->destroy(t);
	free(url);
	free(r);
	return 0;
}
