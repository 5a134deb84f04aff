/*
 * crowd.c - serves clients beyond limits.connections.
 *
 * The daemon accepts a few of them: it answers /health, /ready and /metrics, and refuses all other
 * requests. A full daemon works; if a probe was refused, its supervisor would take it for dead and
 * kill it with all chunks in memory. Each such client has a second for its request, and its
 * connection ends with the answer.
 */
#include "base/log.h"
#include "daemon/server_parts.h"

#define LOG_NS     (10 * KVW_NS_PER_S)
#define TOO_MANY   "too many connections (limits.connections); try again later"
#define EXTRA_MOST 16 /* connections beyond limits.connections */

void kvt_loop_accepted(struct kvw_clients *clients, bool served)
{
	struct kvt_meters *meters = &((struct kvt_loop *)clients)->meters;

	kvt_meter_add(meters, KVT_COUNT_ACCEPTED, 1);
	if (!served)
		kvt_meter_add(meters, KVT_COUNT_REFUSED_DESCRIPTORS, 1);
}

/* Logs refused clients once in a while only, so that many of them do not fill the log. */
static void log_refused(struct kvt_loop *loop, enum kvw_refusal why)
{
	if (loop->told_ns != 0 && loop->base.loop.now_ns - loop->told_ns < LOG_NS)
		return;
	loop->told_ns = loop->base.loop.now_ns;
	kvw_warn("server", "clients are refused why=\"%s\" connections=%u",
		why == KVW_REFUSED_LIMIT ? "limits.connections is reached"
					 : "no descriptor is left",
		atomic_load(&loop->server->base.connections));
}

/* Accepts an extra client, and takes fd. False: there are too many extra clients, too. */
static bool take_extra(struct kvt_loop *loop, int fd)
{
	struct kvt_server *server = loop->server;

	if (atomic_fetch_add(&server->extra, 1) >= EXTRA_MOST) {
		atomic_fetch_sub(&server->extra, 1);
		return false;
	}
	loop->takes_extra = true;
	kvw_server_loop_gained(&loop->base.loop);
	kvw_clients_take(&loop->base, fd);
	/* out of memory: no connection exists that would later give its place back */
	if (loop->takes_extra)
		atomic_fetch_sub(&server->extra, 1);
	loop->takes_extra = false;
	return true;
}

void kvt_conn_turn_away(struct kvt_conn *conn)
{
	struct kvt_loop *loop = kvt_conn_loop(conn);

	kvt_meter_add(&loop->meters, KVT_COUNT_REFUSED_CONNECTIONS, 1);
	log_refused(loop, KVW_REFUSED_LIMIT);
	kvt_conn_refuse(conn, 503, KVT_SOON, TOO_MANY);
	/* without waiting for what the client still sends, since the next client may be a probe */
	kvw_conn_close(&conn->base, false);
}

/* Tries once to send the answer: no thread waits for a client that is refused. */
void kvt_loop_turn_away_take(struct kvw_clients *clients, int fd, enum kvw_refusal why)
{
	static const char answer[] =
		"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
		"Retry-After: 1\r\nConnection: close\r\nContent-Length: 71\r\n\r\n"
		"{\"error\":\"" TOO_MANY "\"}\n";
	struct kvt_loop *loop = (struct kvt_loop *)clients;

	if (why == KVW_REFUSED_LIMIT && take_extra(loop, fd))
		return;
	kvt_meter_add(&loop->meters,
		why == KVW_REFUSED_LIMIT ? KVT_COUNT_REFUSED_CONNECTIONS
					 : KVT_COUNT_REFUSED_DESCRIPTORS,
		1);
	(void)!send(fd, answer, sizeof(answer) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
	close(fd);
	log_refused(loop, why);
}
