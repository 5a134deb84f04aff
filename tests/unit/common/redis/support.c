/*
 * support.c - see the header.
 */
#include "support.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PATIENCE 20000 /* waits of a millisecond */
#define IDLE     50    /* after as many, nothing is taken to come */

static int64_t now_ns(void *self)
{
	return ((struct world *)self)->now_ns;
}

static void keep_line(void *self, uint32_t level, const char *line)
{
	struct world *w = self;
	size_t len = strlen(w->log);

	snprintf(w->log + len, sizeof(w->log) - len, "%u %s\n", level, line);
}

/* --- the client ------------------------------------------------------------------------------- */

void world_init(struct world *w, const char *url)
{
	memset(w, 0, sizeof(*w));
	w->now_ns = 5000 * MS;
	ck_assert_ptr_null(kvw_redis_url_parse(url, &w->url));
	w->options = (struct kvw_redis_options){.url = &w->url,
		.connections = 1,
		.inflight_bytes = 64 << 20,
		.connect_ns = 1000 * MS,
		.env = {.now_ns = now_ns, .clock_self = w, .log = keep_line, .log_self = w}};
}

void world_start(struct world *w)
{
	char why[KVW_REDIS_REASON];

	ck_assert_int_eq(kvw_redis_create(&w->options, why, &w->r), KVW_OK);
}

void world_finish(struct world *w)
{
	kvw_redis_destroy(w->r);
	w->r = NULL;
}

void world_step(struct world *w)
{
	w->next_ns = INT64_MAX;
	(void)kvw_redis_step(w->r, 0, &w->next_ns);
}

struct kvw_redis_stats world_stats(struct world *w)
{
	struct kvw_redis_stats out;

	world_step(w);
	kvw_redis_stats(w->r, &out);
	return out;
}

bool world_logged(const struct world *w, const char *text)
{
	return strstr(w->log, text) != NULL;
}

/* --- commands --------------------------------------------------------------------------------- */

static void order_done(struct kvw_redis_command *c)
{
	struct order *o = c->user;

	o->done = true;
	o->done_count++;
}

void order_make(struct order *o, struct world *w, int64_t deadline_ns, size_t count,
	const char *const *words)
{
	int n;

	memset(o, 0, sizeof(*o));
	n = snprintf(o->head, sizeof(o->head), "*%zu\r\n", count);
	for (size_t i = 0; i < count; i++)
		n += snprintf(o->head + n, sizeof(o->head) - (size_t)n, "$%zu\r\n%s\r\n",
			strlen(words[i]), words[i]);
	ck_assert_uint_lt((size_t)n, sizeof(o->head));
	o->parts[0] = (struct iovec){.iov_base = o->head, .iov_len = (size_t)n};
	o->c = (struct kvw_redis_command){.parts = o->parts,
		.part_count = 1,
		.slot = KVW_REDIS_ANY_SLOT,
		.deadline_ns = w->now_ns + deadline_ns,
		.done = order_done,
		.user = o};
}

void order_value(struct order *o, const void *value, size_t len)
{
	size_t n = o->parts[0].iov_len;

	o->head[1]++; /* one argument more; fewer than nine of them */
	n += (size_t)snprintf(o->head + n, sizeof(o->head) - n, "$%zu\r\n", len);
	o->parts[0].iov_len = n;
	o->parts[1] = (struct iovec){.iov_base = (void *)value, .iov_len = len};
	o->parts[2] = (struct iovec){.iov_base = (char *)"\r\n", .iov_len = 2};
	o->c.part_count = 3;
}

void order_into(struct order *o, void *memory, size_t len, size_t pieces)
{
	size_t each = len / pieces;

	ck_assert_uint_le(pieces, 8);
	for (size_t i = 0; i < pieces; i++)
		o->segments[i] = (struct iovec){.iov_base = (char *)memory + i * each,
			.iov_len = i + 1 == pieces ? len - i * each : each};
	o->c.into = o->segments;
	o->c.into_count = (uint32_t)pieces;
}

void order_submit(struct order *o, struct world *w)
{
	o->done = false;
	kvw_redis_submit(w->r, &o->c);
}

void order_wait(struct order *o, struct world *w)
{
	for (int i = 0; i < PATIENCE && !o->done; i++) {
		world_step(w);
		if (!o->done && i > 16)
			(void)poll(NULL, 0, 1);
	}
	ck_assert(o->done);
	ck_assert_uint_eq(o->done_count, 1);
}

/* --- the server ------------------------------------------------------------------------------- */

static void fake_listen(struct fake *f)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
		.sin_port = htons(f->port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(address);
	int on = 1;

	f->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	ck_assert_int_ge(f->listener, 0);
	(void)setsockopt(f->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	ck_assert_int_eq(bind(f->listener, (struct sockaddr *)&address, len), 0);
	ck_assert_int_eq(getsockname(f->listener, (struct sockaddr *)&address, &len), 0);
	ck_assert_int_eq(listen(f->listener, 16), 0);
	f->port = ntohs(address.sin_port);
}

void fake_init(struct fake *f, struct world *w)
{
	*f = (struct fake){.w = w};
	fake_listen(f);
	snprintf(f->url, sizeof(f->url), "redis://127.0.0.1:%u", f->port);
}

void fake_reopen(struct fake *f)
{
	fake_listen(f);
}

void fake_finish(struct fake *f)
{
	if (f->listener >= 0)
		close(f->listener);
	f->listener = -1;
}

/* Lets the client work until the descriptor has something. False: it has not. */
static bool wait_for(struct fake *f, int fd, int patience)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	for (int i = 0; i < patience; i++) {
		world_step(f->w);
		if (poll(&p, 1, i > 16 ? 1 : 0) > 0)
			return true;
	}
	return false;
}

int fake_accept(struct fake *f)
{
	int fd;

	if (!wait_for(f, f->listener, PATIENCE))
		ck_abort_msg("the client does not connect; it has logged:\n%s", f->w->log);
	fd = accept4(f->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	ck_assert_int_ge(fd, 0);
	return fd;
}

bool fake_has_none(struct fake *f)
{
	return !wait_for(f, f->listener, IDLE);
}

int fake_login(struct fake *f)
{
	int fd = fake_accept(f);

	HEAR(f, fd, "*2\r\n$4\r\nINFO\r\n$6\r\nserver\r\n");
	SAY(f, fd, "$26\r\nredis_version:0.0.1\r\nx:y\r\n\r\n");
	return fd;
}

void fake_hear(struct fake *f, int fd, const char *expected, size_t len)
{
	char *got = malloc(len + 1);
	size_t at = 0;

	ck_assert_ptr_nonnull(got);
	while (at < len) {
		ssize_t n;

		ck_assert(wait_for(f, fd, PATIENCE));
		n = recv(fd, got + at, len - at, 0);
		if (n <= 0)
			ck_abort_msg("the client has hung up; it has logged:\n%s", f->w->log);
		at += (size_t)n;
	}
	got[len] = '\0';
	if (memcmp(got, expected, len) != 0)
		ck_abort_msg("heard '%s', not '%s'", got, expected);
	free(got);
}

bool fake_hears_nothing(struct fake *f, int fd)
{
	return !wait_for(f, fd, IDLE);
}

void fake_say(struct fake *f, int fd, const char *text, size_t len)
{
	int failures = 0;

	for (size_t at = 0; at < len;) {
		ssize_t n = send(fd, text + at, len - at, MSG_NOSIGNAL);

		if (n > 0)
			at += (size_t)n;
		else if (errno != EAGAIN || ++failures > PATIENCE)
			ck_abort_msg("cannot say it: %s", strerror(errno));
		world_step(f->w);
	}
}

void fake_hear_end(struct fake *f, int fd)
{
	char scrap[4096];

	for (;;) {
		ck_assert(wait_for(f, fd, PATIENCE));
		if (recv(fd, scrap, sizeof(scrap), 0) <= 0)
			break;
	}
	close(fd);
}

void fake_close(int fd)
{
	close(fd);
}
