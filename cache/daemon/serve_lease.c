/*
 * serve_lease.c - serves POST /v1/kv/{bucket}/{key}/leases.
 *
 * If the object is in memory or unavailable, the answer comes inside the call of kvt_object_lease,
 * otherwise later, on the objects' own thread. That thread writes the answer's text while the
 * fragments are borrowed, and posts it to the loop of the connection. If the connection has ended
 * meanwhile, the lease is released at once.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/server_parts.h"

#define SMALL_BODY     512
#define FRAGMENT_BYTES 64 /* longest text of one fragment */

/* One request that waits for its lease. */
struct lease_wait {
	struct kvw_wait wait; /* first */
	pthread_t asker;      /* the loop's thread */
	bool inside;          /* the call of kvt_object_lease has not returned */
	bool early;           /* the answer came inside that call */
	int64_t asked_ns;
	uint64_t timeout_ns;
	enum kvt_status status;
	char id[KVT_LEASE_ID_BYTES];
	char *body; /* small, or owned */
	size_t body_len;
	char small[SMALL_BODY];
};

static void drop(struct lease_wait *w)
{
	if (w->body != w->small)
		free(w->body);
	free(w);
}

static size_t print_u64(char *to, uint64_t value)
{
	char digits[20];
	size_t n = 0;

	do {
		digits[n++] = (char)('0' + value % 10);
		value /= 10;
	} while (value > 0);
	for (size_t i = 0; i < n; i++)
		to[i] = digits[n - 1 - i];
	return n;
}

static size_t print_text(char *to, const char *text)
{
	size_t len = strlen(text);

	memcpy(to, text, len);
	return len;
}

/* {"id":"...","offsets":[{"offset":N,"len":N},...]} */
static bool write_body(struct lease_wait *w, const struct kvt_grant *grant)
{
	size_t room = 64 + KVT_LEASE_ID_BYTES + (size_t)grant->count * FRAGMENT_BYTES, used = 0;

	w->body = room <= SMALL_BODY ? w->small : malloc(room);
	if (w->body == NULL)
		return false;
	used += print_text(w->body, "{\"id\":\"");
	used += print_text(w->body + used, grant->id);
	used += print_text(w->body + used, "\",\"offsets\":[");
	for (uint32_t i = 0; i < grant->count; i++) {
		used += print_text(w->body + used, i == 0 ? "{\"offset\":" : ",{\"offset\":");
		used += print_u64(w->body + used, grant->fragments[i].arena_offset);
		used += print_text(w->body + used, ",\"len\":");
		used += print_u64(w->body + used, grant->fragments[i].bytes);
		w->body[used++] = '}';
	}
	used += print_text(w->body + used, "]}");
	w->body_len = used;
	return true;
}

static void answer_miss(struct kvt_conn *conn, const struct lease_wait *w)
{
	int64_t waited = kvw_clock_ns() - w->asked_ns;

	switch (w->status) {
	case KVT_BUSY:
		kvt_meter_add(&kvt_conn_loop(conn)->meters, KVT_COUNT_REFUSED_LEASES, 1);
		kvt_conn_refuse(conn, 503, KVT_SOON, "too many leases (limits.leases)");
		return;
	case KVT_EINVAL:
		kvt_conn_refuse(conn, 400, NULL,
			"expected a bucket of 1 to %d and a key of 1 to %d bytes", KVT_BUCKET_MOST,
			KVT_OBJECT_KEY_MOST);
		return;
	case KVT_MISS:
	case KVT_ECANCELED: /* not a 404: engines must not conclude that the object is absent */
		if (w->timeout_ns > 0 && waited >= (int64_t)w->timeout_ns)
			kvt_conn_refuse(conn, 504, KVT_SOON, "not within timeout_ms");
		else if (w->status == KVT_ECANCELED)
			kvt_conn_refuse(conn, 404, KVT_SOON, "not found now; it may be there later");
		else
			kvt_conn_refuse(conn, 404, NULL, "not found");
		return;
	default:
		kvt_conn_fail(conn, "no lease now: ", kvt_status_text(w->status));
	}
}

/* Releases a lease that was granted after its client had gone. */
static void give_back(struct kvt_loop *loop, const struct lease_wait *w)
{
	if (w->id[0] == '\0')
		return;
	kvt_meter_add(&loop->meters, KVT_COUNT_LEASES_UNREAD, 1);
	(void)!kvt_object_release(loop->server->objects, kvw_slice_of(w->id));
}

static void finish(struct kvt_conn *conn, struct lease_wait *w)
{
	if (w->status == KVT_OK) {
		memcpy(conn->lease_id, w->id, sizeof(conn->lease_id));
		conn->base.until_read = true;
		kvt_conn_answer_json(conn, 200, w->body, w->body_len);
	} else {
		give_back(kvt_conn_loop(conn), w);
		answer_miss(conn, w);
	}
	drop(w);
}

static void delivered(struct kvw_mail *mail, struct kvw_server_loop *loop)
{
	struct lease_wait *w = (struct lease_wait *)mail;
	struct kvt_conn *conn = (struct kvt_conn *)kvw_conn_settle(&w->wait);

	if (conn != NULL) {
		finish(conn, w);
		kvw_conn_advance(&conn->base);
		return;
	}
	give_back((struct kvt_loop *)loop, w);
	drop(w);
}

/* Called on the objects' thread, or inside the call of kvt_object_lease. */
static void granted(void *user, enum kvt_status status, const struct kvt_grant *grant)
{
	struct lease_wait *w = user;

	w->status = status;
	if (status == KVT_OK) {
		memcpy(w->id, grant->id, sizeof(w->id));
		if (!write_body(w, grant))
			w->status = KVT_ENOMEM;
	}
	if (pthread_equal(w->asker, pthread_self()) && w->inside)
		w->early = true;
	else
		kvw_server_loop_post(w->wait.loop, &w->wait.mail);
}

static uint64_t cut(bool given, uint64_t wish, uint64_t usual, uint64_t most)
{
	uint64_t value = given ? wish : usual;

	return value < most ? value : most;
}

void kvt_serve_lease(struct kvt_conn *conn)
{
	struct kvt_loop *loop = kvt_conn_loop(conn);
	const struct kvt_daemon_config *config = loop->server->config;
	const struct kvt_target *target = &loop->target;
	struct lease_wait *w = malloc(sizeof(*w));
	struct kvt_object_name name = {target->bucket, target->key};
	struct kvt_lease_wish wish;

	if (w == NULL) {
		kvt_conn_fail(conn, "", "out of memory");
		return;
	}
	memset(w, 0, offsetof(struct lease_wait, small));
	w->wait = (struct kvw_wait){.mail.deliver = delivered};
	w->asker = pthread_self();
	w->inside = true;
	w->body = w->small;
	w->asked_ns = conn->base.begun_ns;
	w->timeout_ns = cut(target->has_timeout, target->timeout_ns, config->lease_wait_ns,
		config->lease_wait_max_ns);
	wish = (struct kvt_lease_wish){
		.timeout_ns = w->timeout_ns,
		.ttl_ns = cut(target->has_ttl, target->ttl_ns, config->lease_ttl_ns,
			config->lease_ttl_max_ns),
		.unchecked = target->unchecked,
	};
	/* set before the call, since another thread may answer at once */
	kvw_conn_await(&conn->base, &w->wait);
	kvt_object_lease(loop->server->objects, &name, &wish, granted, w);
	w->inside = false;
	if (!w->early)
		return;
	(void)kvw_conn_settle(&w->wait);
	finish(conn, w);
}
