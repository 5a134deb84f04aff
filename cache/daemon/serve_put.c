/*
 * serve_put.c - PUT /v1/kv/{bucket}/{key}: from the socket straight into the segment.
 *
 * Room is reserved before the body comes, so that its size has to be known: a chunked body is
 * refused with 411. The body is received into its final place, and its checksum is computed piece
 * by piece while the bytes are still in the core's cache; only what arrived together with the head
 * is copied. The object becomes visible with its last byte; an incomplete body gives its room back.
 *
 * A PUT that replaces another object ends on the thread of jobs.
 *
 * A refused PUT is answered at once. The rest of its body is discarded, up to the largest size of
 * an object, so that the connection can be used again.
 */
#include <stdlib.h>
#include <string.h>

#include "chunk/tenants.h"
#include "daemon/server_parts.h"

#define PIECE      ((uint64_t)256 << 10) /* bytes that are received at once, then hashed */
#define TURN_BYTES ((uint64_t)4 << 20)   /* after so many bytes other connections get their turn */
#define PIECE_IOV  16

/* --- the end ---------------------------------------------------------------------------------- */

static void drop_stream(struct kvt_conn *conn)
{
	free(conn->put);
	conn->put = NULL;
	atomic_fetch_sub(&kvt_conn_loop(conn)->server->puts, 1);
}

void kvt_conn_abort_put(struct kvt_conn *conn)
{
	if (conn->put == NULL)
		return;
	kvt_object_put_abort(kvt_conn_loop(conn)->server->objects, conn->put->put);
	drop_stream(conn);
}

/* Returns the whole seconds until writes are allowed, at least 1. */
static unsigned quiet_left(const struct kvt_server *server)
{
	int64_t until = kvt_segment_quiet_until(server->segment);
	int64_t left = until == 0 ? 0 : until - kvw_clock_wall_ns();

	return left <= 0 ? 0 : (unsigned)(left / KVW_NS_PER_S) + 1;
}

/* limited: the KVT_FULL comes from the tenant's limit, and the answer says so, since engines must
 * not take it for a full daemon. */
static void refuse_put(struct kvt_conn *conn, enum kvt_status status, bool limited)
{
	struct kvt_meters *meters = &kvt_conn_loop(conn)->meters;
	unsigned quiet = status == KVT_BUSY ? quiet_left(kvt_conn_loop(conn)->server) : 0;
	char retry[40];

	switch (status) {
	case KVT_FULL:
		kvt_meter_add(meters, limited ? KVT_COUNT_REFUSED_QUOTA : KVT_COUNT_REFUSED_ROOM, 1);
		kvt_conn_refuse(conn, 507,
			limited ? KVT_REFUSED_HEADER ": " KVT_REFUSED_QUOTA "\r\n" : NULL, "%s",
			limited ? "no room: its tenant is at its limit, and what it has is leased, on "
				  "its way to disk, or smaller than this"
				: "no room: the segment is full of objects that are leased or on "
				  "their way to disk");
		return;
	case KVT_BUSY:
		kvt_meter_add(
			meters, quiet > 0 ? KVT_COUNT_REFUSED_QUIET : KVT_COUNT_REFUSED_PUTS, 1);
		snprintf(retry, sizeof(retry), "Retry-After: %u\r\n", quiet > 0 ? quiet : 1);
		kvt_conn_refuse(conn, 503, retry, "%s",
			quiet > 0 ? "leases of the daemon before its restart may still be read"
				  : "too many PUTs are under way, or the object in whose place this one "
				    "would come cannot be given up, since a disk or the shared tier does not answer");
		return;
	case KVT_EINVAL:
		kvt_conn_refuse(conn, 400, NULL,
			"expected a bucket of 1 to %d and a key of 1 to %d bytes", KVT_BUCKET_MOST,
			KVT_OBJECT_KEY_MOST);
		return;
	default:
		kvt_conn_fail(conn, "not stored: ", kvt_status_text(status));
	}
}

static void answer_put(struct kvt_conn *conn, enum kvt_status status, enum kvt_put_outcome outcome)
{
	if (status == KVT_OK)
		kvw_conn_answer(&conn->base,
			&(struct kvw_http_answer){.status = outcome == KVT_PUT_SAME ? 409 : 200});
	else
		refuse_put(conn, status, outcome == KVT_PUT_LIMITED);
}

/* A PUT that replaces another object: its end waits for the disk, or the shared tier. */
struct replace_job {
	struct kvt_job job; /* first */
	struct kvt_object_put *put;
	struct kvt_checksum sum;
	enum kvt_status status;
	enum kvt_put_outcome outcome;
};

static void run_replace(struct kvt_job *job, struct kvt_objects *objects)
{
	struct replace_job *replace = (struct replace_job *)job;

	replace->status =
		kvt_object_put_end(objects, replace->put, &replace->sum, true, &replace->outcome);
}

static void replaced(struct kvw_mail *mail, struct kvw_server_loop *loop)
{
	struct replace_job *replace = (struct replace_job *)mail;
	struct kvt_conn *conn = (struct kvt_conn *)kvw_conn_settle(&replace->job.wait);

	(void)loop;
	if (conn != NULL) {
		answer_put(conn, replace->status, replace->outcome);
		kvw_conn_advance(&conn->base);
	}
	free(replace);
}

static void replace_later(struct kvt_conn *conn, struct kvt_object_put *put, const struct kvt_checksum *sum)
{
	struct kvt_server *server = kvt_conn_loop(conn)->server;
	struct replace_job *replace = calloc(1, sizeof(*replace));

	if (replace != NULL) {
		*replace = (struct replace_job){.job = {.wait = {.mail.deliver = replaced}, .run = run_replace},
			.put = put,
			.sum = *sum};
		kvw_conn_await(&conn->base, &replace->job.wait);
		if (kvt_jobs_add(server->jobs, &replace->job))
			return;
		(void)kvw_conn_settle(&replace->job.wait);
		free(replace);
	}
	kvt_object_put_abort(server->objects, put);
	refuse_put(conn, KVT_BUSY, false);
}

static void finish_put(struct kvt_conn *conn)
{
	enum kvt_put_outcome outcome = KVT_PUT_STORED;
	struct kvt_object_put *put = conn->put->put;
	struct kvt_checksum sum;
	enum kvt_status status;

	kvt_checksum_end(&conn->put->sum, &sum);
	status = kvt_object_put_end(kvt_conn_loop(conn)->server->objects, put, &sum, false, &outcome);
	drop_stream(conn);
	if (status == KVT_MISS)
		replace_later(conn, put, &sum);
	else
		answer_put(conn, status, outcome);
}

/* --- the body --------------------------------------------------------------------------------- */

/* Returns in iov the next pieces of the segment to fill, at most `most` bytes. */
static int next_room(const struct kvt_put_stream *s, uint64_t most, struct iovec iov[PIECE_IOV])
{
	uint64_t offset = s->offset;
	int count = 0;

	for (uint32_t i = s->at; i < s->count && most > 0 && count < PIECE_IOV; i++, offset = 0) {
		uint64_t here = s->segments[i].bytes - offset;

		here = here < most ? here : most;
		if (here == 0)
			continue;
		iov[count++] = (struct iovec){(char *)s->segments[i].base + offset, here};
		most -= here;
	}
	return count;
}

/*
 * Sets how many bytes must have arrived before the loop wakes, to avoid a wakeup for every packet.
 * Never more than is still to come, or the end would not wake it; bytes that a slow client has sent
 * meanwhile wait in the kernel.
 */
static void wake_at(struct kvt_conn *conn, uint64_t bytes)
{
	int low = bytes >= PIECE ? (int)PIECE : 1;

	if (low == conn->put->low_water)
		return;
	conn->put->low_water = low;
	(void)setsockopt(conn->base.io.fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low));
}

/* Counts n bytes that were received into place, and hashes them. */
static void took(struct kvt_conn *conn, uint64_t n)
{
	struct kvt_put_stream *s = conn->put;

	kvw_conn_took(&conn->base, n);
	kvt_meter_add(&kvt_conn_loop(conn)->meters, KVT_COUNT_BYTES_IN, n);
	while (n > 0) {
		const struct kvt_segment *segment = &s->segments[s->at];
		uint64_t here = segment->bytes - s->offset;

		here = here < n ? here : n;
		kvt_checksum_update(&s->sum, (const char *)segment->base + s->offset, here);
		s->offset += here;
		n -= here;
		if (s->offset == segment->bytes) {
			s->at++;
			s->offset = 0;
		}
	}
}

/* Copies the part of the body that came together with the head. */
static void take_buffered(struct kvt_conn *conn)
{
	uint64_t have = conn->base.in_end - conn->base.in_begin;
	struct iovec iov[PIECE_IOV];

	have = have < conn->base.body_left ? have : conn->base.body_left;
	while (have > 0) {
		int count = next_room(conn->put, have, iov);
		uint64_t n = 0;

		for (int i = 0; i < count; i++) {
			memcpy(iov[i].iov_base, conn->base.in + conn->base.in_begin, iov[i].iov_len);
			conn->base.in_begin += iov[i].iov_len;
			n += iov[i].iov_len;
		}
		took(conn, n);
		have -= n;
	}
}

static void receive_put(struct kvw_conn *base)
{
	struct kvt_conn *conn = (struct kvt_conn *)base;
	uint64_t done = 0;

	take_buffered(conn);
	while (conn->base.body_left > 0 && conn->base.io.readable && done < TURN_BYTES) {
		uint64_t wanted = conn->base.body_left < PIECE ? conn->base.body_left : PIECE;
		struct iovec iov[PIECE_IOV];
		int count = next_room(conn->put, wanted, iov);
		size_t room = 0;
		ssize_t n;

		for (int i = 0; i < count; i++)
			room += iov[i].iov_len;
		n = kvw_io_readv(&conn->base.io, iov, count, room);
		if (n == 0 || (n < 0 && errno != EAGAIN)) {
			kvw_conn_close(&conn->base, false); /* incomplete: closing aborts the put */
			return;
		}
		if (n < 0)
			return;
		took(conn, (uint64_t)n);
		wake_at(conn, conn->base.body_left);
		done += (uint64_t)n;
	}
	if (conn->base.body_left == 0)
		finish_put(conn);
	else if (conn->base.io.readable)
		kvw_io_again(&conn->base.io);
}

/* --- the beginning ---------------------------------------------------------------------------- */

/* Checks a PUT before the objects are asked for room. */
static bool may_begin(struct kvt_conn *conn)
{
	const struct kvw_head *head = &kvt_conn_loop(conn)->base.head;
	uint64_t most = kvt_conn_loop(conn)->server->config->object_bytes;

	if (head->framing != KVW_FRAME_LENGTH) {
		kvt_conn_refuse(conn, 411, NULL,
			"expected Content-Length: room is reserved before the body comes, so a "
			"chunked body is not taken");
		return false;
	}
	if (conn->base.body_left == 0) {
		kvt_conn_refuse(conn, 400, NULL, "an object has at least one byte");
		return false;
	}
	if (conn->base.body_left > most) {
		conn->base.body_unread = true;
		kvt_meter_add(&kvt_conn_loop(conn)->meters, KVT_COUNT_REFUSED_SIZE, 1);
		kvt_conn_refuse(conn, 413, NULL,
			"found %llu bytes, expected at most %llu (limits.object)",
			(unsigned long long)conn->base.body_left, (unsigned long long)most);
		return false;
	}
	return true;
}

static struct kvt_put_stream *make_stream(struct kvt_server *server)
{
	struct kvt_put_stream *stream;

	if (atomic_fetch_add(&server->puts, 1) >= server->config->puts)
		stream = NULL;
	else
		stream = aligned_alloc(_Alignof(struct kvt_put_stream), sizeof(*stream));
	if (stream == NULL)
		atomic_fetch_sub(&server->puts, 1);
	return stream;
}

/* Reads the hash of a cache salt, as engines with libkvtier send it. False: refused. */
static bool take_tenant(struct kvt_conn *conn, struct kvt_tenant *tenant, bool *named)
{
	const struct kvw_field *field = kvw_head_find(
		&kvt_conn_loop(conn)->base.head, kvw_slice_of(KVT_TENANT_HEADER));

	*named = field != NULL;
	if (field == NULL || kvt_tenant_parse(field->value, tenant))
		return true;
	kvt_conn_refuse(conn, 400, NULL, KVT_TENANT_HEADER ": expected 32 hex digits");
	return false;
}

void kvt_serve_put(struct kvt_conn *conn)
{
	struct kvt_loop *loop = kvt_conn_loop(conn);
	struct kvt_object_name name = {loop->target.bucket, loop->target.key};
	struct kvt_put_stream *stream;
	struct kvt_tenant tenant;
	enum kvt_status status;
	bool named;

	if (!may_begin(conn) || !take_tenant(conn, &tenant, &named))
		return;
	stream = make_stream(loop->server);
	if (stream == NULL) {
		kvt_meter_add(&loop->meters, KVT_COUNT_REFUSED_PUTS, 1);
		kvt_conn_refuse(conn, 503, KVT_SOON, "too many PUTs are under way (limits.puts)");
		return;
	}
	status = kvt_object_put_begin(loop->server->objects, &name, named ? &tenant : NULL,
		conn->base.body_left, &stream->put, &stream->segments, &stream->count);
	conn->put = stream;
	if (status != KVT_OK) {
		drop_stream(conn);
		refuse_put(conn, status,
			status == KVT_FULL && kvt_object_is_limited(loop->server->objects, &name,
						      named ? &tenant : NULL, conn->base.body_left));
		return;
	}
	stream->at = 0;
	stream->offset = 0;
	stream->low_water = 1;
	kvt_checksum_begin(&stream->sum);
	(void)!kvw_conn_receive(&conn->base, receive_put);
}
