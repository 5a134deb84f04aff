/*
 * connection.c - a client's connection to kvtierd, built on src/common/server: its requests, time
 * limits and end.
 */
#include <string.h>

#include "daemon/server_parts.h"

#define EXTRA_HEAD_NS ((uint64_t)KVW_NS_PER_S)

static struct kvt_conn *conn_of(struct kvw_conn *base)
{
	return (struct kvt_conn *)base; /* its first member */
}

static struct kvt_meters *meters_of(struct kvw_conn *base)
{
	return &kvt_conn_loop(conn_of(base))->meters;
}

static bool opened(struct kvw_conn *base)
{
	struct kvt_conn *conn = conn_of(base);
	struct kvt_loop *loop = kvt_conn_loop(conn);

	conn->extra = loop->takes_extra;
	loop->takes_extra = false;
	if (conn->extra)
		kvw_conn_head_within(base, EXTRA_HEAD_NS);
	return true;
}

static void request(struct kvw_conn *base)
{
	struct kvt_conn *conn = conn_of(base);

	conn->route = KVT_ROUTE_other;
	base->close_after = base->close_after || conn->extra;
	kvt_serve(conn);
}

static void refuse(
	struct kvw_conn *base, enum kvw_conn_refusal what, int status, const char *message)
{
	struct kvt_conn *conn = conn_of(base);

	if (what != KVW_CONN_LATE_BODY)
		conn->route = KVT_ROUTE_other;
	switch (what) {
	case KVW_CONN_LATE_HEAD:
		if (conn->extra) {
			kvt_conn_turn_away(conn);
			return;
		}
		message = "the request's head did not come within limits.head_time";
		break;
	case KVW_CONN_LATE_BODY:
		kvt_conn_abort_put(conn);
		kvt_conn_refuse(conn, status, NULL,
			"the body came more slowly than limits.body_rate: %llu bytes of %llu",
			(unsigned long long)base->body_got,
			(unsigned long long)(base->body_got + base->body_left));
		return;
	case KVW_CONN_BAD_HEAD:
	case KVW_CONN_BAD_BODY:
		break;
	}
	kvt_conn_refuse(conn, status,
		status == 405 ? "Allow: GET, PUT, POST, DELETE\r\n" : NULL, "%s", message);
}

static void answered(struct kvw_conn *base, int status)
{
	kvt_meter_answer(meters_of(base), conn_of(base)->route, status,
		kvw_clock_ns() - base->begun_ns);
}

static void sent(struct kvw_conn *base, size_t bytes)
{
	kvt_meter_add(meters_of(base), KVT_COUNT_BYTES_OUT, bytes);
}

static void timed_out(struct kvw_conn *base, enum kvw_conn_time which)
{
	static const enum kvt_count counts[] = {
		[KVW_CONN_TIME_IDLE] = KVT_COUNT_TIMEOUT_IDLE,
		[KVW_CONN_TIME_HEAD] = KVT_COUNT_TIMEOUT_HEAD,
		[KVW_CONN_TIME_BODY] = KVT_COUNT_TIMEOUT_BODY,
		[KVW_CONN_TIME_WRITE] = KVT_COUNT_TIMEOUT_WRITE,
	};

	kvt_meter_add(meters_of(base), counts[which], 1);
}

/* Gives back the room of an incomplete PUT, and the lease of an answer that no client received. */
static void closed(struct kvw_conn *base)
{
	struct kvt_conn *conn = conn_of(base);

	if (conn->extra)
		atomic_fetch_sub(&kvt_conn_loop(conn)->server->extra, 1);
	if (conn->put != NULL)
		kvt_meter_add(meters_of(base), KVT_COUNT_CUT_PUTS, 1);
	kvt_conn_abort_put(conn);
	if (!base->until_read)
		return;
	kvt_meter_add(meters_of(base), KVT_COUNT_LEASES_UNREAD, 1);
	(void)!kvt_object_release(
		kvt_conn_loop(conn)->server->objects, kvw_slice_of(conn->lease_id));
}

static const struct kvw_clients_ops ops = {
	.request = request,
	.refuse = refuse,
	.turn_away_take = kvt_loop_turn_away_take,
	.accepted = kvt_loop_accepted,
	.opened = opened,
	.answered = answered,
	.sent = sent,
	.timed_out = timed_out,
	.closed = closed,
};

struct kvw_clients_options kvt_conn_options(const struct kvt_daemon_config *config)
{
	return (struct kvw_clients_options){
		.ops = &ops,
		.limits = {.idle_ns = config->idle_ns,
			.head_ns = config->head_ns,
			.write_ns = config->write_ns,
			.body_ns = config->body_ns,
			.body_rate = config->body_rate},
		.conn_bytes = sizeof(struct kvt_conn),
		/* By this field libkvtier's own client knows that a 404 to its DELETE means that
		 * the object is gone. */
		.fields = "Server: kvtierd\r\n",
	};
}
