/*
 * fake_daemon.c - blocking sockets, a bump allocator, and faults.
 */
#include "fake_daemon.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SEGMENT_BYTES ((size_t)64 << 20)
#define HEAD_ROOM     8192

struct connection {
	struct fake_daemon *d;
	int slot, fd;
	int requests;
	char buffer[HEAD_ROOM];
	size_t len;
};

struct request {
	char method[16], target[1024];
	char name[256]; /* bucket/key */
	size_t body;
	long timeout_ms;
	bool is_lease, is_release;
};

/* Check's own assertions are for one thread. */
static void must(bool good)
{
	if (!good)
		abort();
}

static void pause_ms(int ms)
{
	struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

	(void)nanosleep(&t, NULL);
}

static int64_t now_ms(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* An answer that comes so late, or as soon as the test wants none late any more. */
static void be_late(struct fake_daemon *d, const _Atomic int *late_ms)
{
	const int64_t begun_ms = now_ms();

	if (atomic_load(late_ms) > 0)
		d->late++;
	while (now_ms() - begun_ms < atomic_load(late_ms) && !d->ending)
		pause_ms(1);
}

/* Takes one of so many. */
static bool takes(_Atomic int *times)
{
	int n = atomic_load(times);

	while (n > 0)
		if (atomic_compare_exchange_weak(times, &n, n - 1))
			return true;
	return false;
}

/* --- objects ---------------------------------------------------------------------------------- */

static void make_segment(struct fake_daemon *d)
{
	d->fd = shm_open(d->segment, O_CREAT | O_RDWR | O_EXCL, 0600);
	must(d->fd >= 0);
	must(ftruncate(d->fd, (off_t)d->size) == 0);
	d->map = mmap(NULL, d->size, PROT_READ | PROT_WRITE, MAP_SHARED, d->fd, 0);
	must(d->map != MAP_FAILED);
	d->used = 0;
}

static void drop_segment(struct fake_daemon *d)
{
	(void)shm_unlink(d->segment);
	(void)munmap(d->map, d->size);
	(void)close(d->fd);
}

static struct fake_object *find(struct fake_daemon *d, const char *name)
{
	for (size_t i = 0; i < FAKE_OBJECTS; i++)
		if (strcmp(d->objects[i].name, name) == 0)
			return &d->objects[i];
	return NULL;
}

static struct fake_object *find_text(struct fake_daemon *d, const char *text)
{
	for (size_t i = 0; i < FAKE_OBJECTS; i++)
		if (d->objects[i].name[0] != '\0' && strstr(d->objects[i].name, text) != NULL)
			return &d->objects[i];
	return NULL;
}

static char *byte_at(struct fake_daemon *d, const struct fake_object *o, size_t at)
{
	for (size_t i = 0; i < o->pieces; i++) {
		if (at < o->lengths[i])
			return d->map + o->offsets[i] + at;
		at -= o->lengths[i];
	}
	return NULL;
}

/* Room in pieces, the last of them first in the segment. */
static void lay_out(struct fake_daemon *d, struct fake_object *o, size_t bytes)
{
	size_t pieces = (size_t)atomic_load(&d->faults.fragments);

	pieces = pieces < 1 ? 1 : pieces > FAKE_PIECES ? FAKE_PIECES : pieces;
	pieces = pieces > bytes ? 1 : pieces;
	if (d->used + bytes + 64 * pieces > d->size)
		d->used = 0; /* what was there is overwritten: tests do not come here with leases */
	o->bytes = bytes;
	o->pieces = pieces;
	for (size_t i = pieces; i-- > 0;) {
		size_t each = bytes / pieces;

		o->lengths[i] = i + 1 == pieces ? bytes - each * (pieces - 1) : each;
		o->offsets[i] = d->used + 13;
		d->used += o->lengths[i] + 64;
	}
}

static bool is_same(struct fake_daemon *d, const struct fake_object *o, const char *body)
{
	size_t at = 0;

	for (size_t i = 0; i < o->pieces; at += o->lengths[i++])
		if (memcmp(d->map + o->offsets[i], body + at, o->lengths[i]) != 0)
			return false;
	return true;
}

static int put(struct fake_daemon *d, const char *name, const char *body, size_t bytes)
{
	struct fake_object *o;
	size_t at = 0;

	pthread_mutex_lock(&d->lock);
	o = find(d, name);
	if (o != NULL && o->bytes == bytes && is_same(d, o, body)) {
		pthread_mutex_unlock(&d->lock);
		d->same++;
		return 409;
	}
	if (o == NULL)
		o = find(d, "");
	must(o != NULL && bytes < d->size / 2);
	(void)snprintf(o->name, sizeof(o->name), "%s", name);
	lay_out(d, o, bytes);
	for (size_t i = 0; i < o->pieces; at += o->lengths[i++])
		memcpy(d->map + o->offsets[i], body + at, o->lengths[i]);
	pthread_mutex_unlock(&d->lock);
	d->puts++;
	return 200;
}

/* --- answers ---------------------------------------------------------------------------------- */

static bool send_all(struct connection *c, const char *text, size_t len)
{
	while (len > 0) {
		ssize_t n = send(c->fd, text, len, MSG_NOSIGNAL);

		if (n <= 0)
			return false;
		text += n;
		len -= (size_t)n;
	}
	return true;
}

static bool answer(struct connection *c, int status, const char *type, const char *body)
{
	struct fake_faults *f = &c->d->faults;
	size_t len = strlen(body), room = len + 512;
	char *text = malloc(room);
	bool chunked = atomic_load(&f->chunked) != 0 && len > 1, good;
	int n;

	must(text != NULL);
	n = snprintf(text, room, "HTTP/1.1 %d X\r\n%s%s%s%s%s%s", status,
		atomic_load(&f->server) ? "Server: kvtierd/1.0\r\n" : "",
		status >= 400 && atomic_load(&f->quota) ? "X-Kvtier-Refused: quota\r\n" : "",
		status >= 400 && atomic_load(&f->later) ? "Retry-After: 1\r\n" : "",
		type[0] != '\0' ? "Content-Type: " : "", type, type[0] != '\0' ? "\r\n" : "");
	if (chunked)
		n += snprintf(text + n, room - (size_t)n,
			"Transfer-Encoding: chunked\r\n\r\n1\r\n%.1s\r\n%zx\r\n%s\r\n0\r\n\r\n",
			body, len - 1, body + 1);
	else
		n += snprintf(
			text + n, room - (size_t)n, "Content-Length: %zu\r\n\r\n%s", len, body);
	if (takes(&f->garbage))
		good = send_all(c, "SMTP 220 hello\r\n\r\n", 18) && false;
	else if (takes(&f->cut))
		good = send_all(c, text, (size_t)n - (len > 0 ? len / 2 : 4)) && false;
	else
		good = send_all(c, text, (size_t)n);
	free(text);
	return good;
}

static void lease_text(struct connection *c, const struct fake_object *o, const char *id,
	enum fake_lie lie, char *out, size_t room)
{
	struct fake_daemon *d = c->d;
	size_t n = 0;
	bool number = atomic_load(&d->faults.number_ids) != 0;

	n += (size_t)snprintf(out, room, "{\"id\":%s%s%s,\"more\":[{}],\"offsets\":[",
		number ? "" : "\"", lie == FAKE_LIE_ID ? "../../v1/kv" : id, number ? "" : "\"");
	for (size_t i = 0; lie != FAKE_LIE_EMPTY && i < o->pieces; i++) {
		uint64_t offset = o->offsets[i];
		int64_t len = (int64_t)o->lengths[i];
		bool last = i + 1 == o->pieces;

		if (lie == FAKE_LIE_BEYOND && last)
			offset = d->size - (uint64_t)len + 1;
		if (lie == FAKE_LIE_OVERFLOW && last)
			offset = INT64_MAX - 5;
		if (lie == FAKE_LIE_NEGATIVE && last)
			len = -len;
		if (last)
			len += lie == FAKE_LIE_SHORT ? -1 : lie == FAKE_LIE_LONG ? 1 : 0;
		n += (size_t)snprintf(out + n, room - n,
			"%s{\"offset\":%" PRIu64 ",\"len\":%" PRId64 "}", i > 0 ? "," : "", offset,
			len);
	}
	for (size_t i = 0; lie == FAKE_LIE_HUGE && i < 100000 && n + 64 < room; i++)
		n += (size_t)snprintf(out + n, room - n, ",{\"offset\":0,\"len\":1}");
	(void)snprintf(out + n, room - n, lie == FAKE_LIE_JSON ? "]" : "]}");
}

static void grant(struct fake_daemon *d, char id[24])
{
	(void)snprintf(id, 24, "%" PRIu64, 1000 + d->next_id);
	memcpy(d->ids[d->next_id % 4096], id, 24);
	d->next_id++;
	d->leases++;
	d->live++;
}

static bool answer_lease(struct connection *c, const struct request *r)
{
	struct fake_daemon *d = c->d;
	struct fake_faults *f = &d->faults;
	size_t room = atomic_load(&f->lie) == FAKE_LIE_HUGE ? 4 << 20 : 16384;
	enum fake_lie lie =
		takes(&f->lie_times) ? (enum fake_lie)atomic_load(&f->lie) : FAKE_LIE_NONE;
	struct fake_object *o, copy = {.bytes = 0};
	char *text, id[24];
	bool good;

	be_late(d, &f->late_ms);
	pthread_mutex_lock(&d->lock);
	o = find(d, r->name);
	if (o != NULL) {
		copy = lie == FAKE_LIE_OTHER ? d->objects[0] : *o;
		grant(d, id);
	}
	pthread_mutex_unlock(&d->lock);
	if (o == NULL) {
		int wait_ms = atomic_load(&f->miss_wait_ms);

		d->misses++;
		wait_ms = r->timeout_ms < wait_ms ? (int)r->timeout_ms : wait_ms;
		d->waited += wait_ms;
		pause_ms(wait_ms);
		return answer(c, atomic_load(&f->miss_wait_ms) > 0 ? 504 : 404, "", "");
	}
	text = malloc(room);
	must(text != NULL);
	lease_text(c, &copy, id, lie, text, room);
	if (takes(&f->overwrite)) {
		pthread_mutex_lock(&d->lock);
		*byte_at(d, &copy, copy.bytes / 3) ^= 1;
		pthread_mutex_unlock(&d->lock);
	}
	good = answer(c, 200,
		lie == FAKE_LIE_TYPE ? "text/html" : "application/json; charset=utf-8", text);
	free(text);
	return good;
}

static bool answer_release(struct connection *c, const struct request *r)
{
	struct fake_daemon *d = c->d;
	char id[24] = "";
	bool known = false;

	(void)sscanf(r->target, "/v1/leases/%23[^/]/release", id);
	pthread_mutex_lock(&d->lock);
	for (size_t i = 0; i < 4096 && id[0] != '\0'; i++) {
		if (strcmp(d->ids[i], id) == 0) {
			d->ids[i][0] = '\0';
			known = true;
		}
	}
	pthread_mutex_unlock(&d->lock);
	if (known) {
		d->releases++;
		d->live--;
	} else {
		d->unknown_releases++;
	}
	return answer(c, known ? 200 : 404, "", "");
}

static bool answer_delete(struct connection *c, const struct request *r)
{
	struct fake_daemon *d = c->d;
	int can = atomic_load(&d->faults.can_delete);
	struct fake_object *o;

	if (can != 1)
		return answer(c, can == 0 ? 405 : 404, "", "");
	pthread_mutex_lock(&d->lock);
	o = find(d, r->name);
	if (o != NULL)
		o->name[0] = '\0';
	pthread_mutex_unlock(&d->lock);
	d->deletes++;
	return answer(c, o != NULL ? 200 : 404, "", "");
}

/* Of a daemon that has a table: with one change, if it was asked for. */
static bool answer_table(struct connection *c, const struct request *r)
{
	struct fake_daemon *d = c->d;

	int has = atomic_load(&d->faults.has_table);

	if (has != 1)
		return answer(c, has == 0 ? 404 : has, "", "");
	pthread_mutex_lock(&d->lock);
	(void)snprintf(d->asked, sizeof(d->asked), "%s %s", r->method, r->target);
	pthread_mutex_unlock(&d->lock);
	return answer(c, 200, "application/json",
		"{\"id\":\"00112233445566778899aabbccddeeff\",\"more\":false,\"sum\":15,"
		"\"changes\":[[7,3],[132095,12]]}");
}

/* --- requests --------------------------------------------------------------------------------- */

/* Reads a head; what is behind it stays in the buffer. */
static bool read_head(struct connection *c, char head[HEAD_ROOM])
{
	for (;;) {
		char *end = memmem(c->buffer, c->len, "\r\n\r\n", 4);
		ssize_t n;

		if (end != NULL) {
			size_t used = (size_t)(end + 4 - c->buffer);

			memcpy(head, c->buffer, used);
			head[used] = '\0';
			memmove(c->buffer, c->buffer + used, c->len - used);
			c->len -= used;
			return true;
		}
		if (c->len == sizeof(c->buffer))
			return false;
		n = recv(c->fd, c->buffer + c->len, sizeof(c->buffer) - c->len, 0);
		if (n <= 0)
			return false;
		c->len += (size_t)n;
	}
}

static void parse(const char *head, struct request *r)
{
	const char *length = strstr(head, "Content-Length: "), *wait;
	char *end;

	*r = (struct request){.body = 0};
	must(sscanf(head, "%15s %1023s", r->method, r->target) == 2);
	must(length != NULL); /* stock daemons see one in every request */
	r->body = strtoull(length + 16, NULL, 10);
	r->is_release = strncmp(r->target, "/v1/leases/", 11) == 0;
	if (r->is_release || strncmp(r->target, "/v1/generations", 15) == 0)
		return;
	must(strncmp(r->target, "/v1/kv/", 7) == 0);
	(void)snprintf(r->name, sizeof(r->name), "%.255s", r->target + 7);
	end = strstr(r->name, "/leases?");
	r->is_lease = end != NULL;
	if (end != NULL)
		*end = '\0';
	wait = strstr(r->target, "timeout_ms=");
	r->timeout_ms = wait != NULL ? strtol(wait + 11, NULL, 10) : 0;
}

static bool read_body(struct connection *c, char *body, size_t bytes)
{
	size_t have = c->len < bytes ? c->len : bytes;

	memcpy(body, c->buffer, have);
	memmove(c->buffer, c->buffer + have, c->len - have);
	c->len -= have;
	while (have < bytes) {
		ssize_t n = recv(c->fd, body + have, bytes - have, 0);

		if (n <= 0)
			return false;
		have += (size_t)n;
	}
	return true;
}

static void reset(struct connection *c)
{
	struct linger now = {.l_onoff = 1, .l_linger = 0};

	(void)setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
}

static bool answer_put(struct connection *c, const struct request *r)
{
	struct fake_faults *f = &c->d->faults;
	char *body;
	bool good;

	if (takes(&f->early_refusal)) {
		(void)answer(c, 507, "", "");
		return false;
	}
	body = malloc(r->body + 1);
	must(body != NULL);
	if (takes(&f->reset_put)) {
		(void)read_body(c, body, r->body / 2);
		reset(c);
		free(body);
		return false;
	}
	good = read_body(c, body, r->body);
	if (good) {
		int status = put(c->d, r->name, body, r->body);

		be_late(c->d, &f->put_late_ms);
		good = answer(c, status, "", "");
	}
	free(body);
	return good;
}

static bool serve(struct connection *c)
{
	struct fake_faults *f = &c->d->faults;
	char head[HEAD_ROOM + 1];
	struct request r;
	int verb = atomic_load(&f->status_verb);
	bool go_on;

	if (!read_head(c, head))
		return false;
	parse(head, &r);
	c->requests++;
	if (takes(&f->drop))
		return false;
	verb = atomic_load(&f->status_verb);
	if ((verb == 0 || r.method[0] == verb) && !r.is_release && takes(&f->status_times)) {
		char *body = malloc(r.body + 1);

		go_on = body != NULL && read_body(c, body, r.body) &&
			answer(c, atomic_load(&f->status), "", "no");
		free(body);
	} else if (r.is_release) {
		go_on = answer_release(c, &r);
	} else if (r.is_lease) {
		go_on = answer_lease(c, &r);
	} else if (strncmp(r.target, "/v1/generations", 15) == 0) {
		go_on = answer_table(c, &r);
	} else if (strcmp(r.method, "POST") == 0) {
		go_on = answer(c, 405, "", "");
	} else if (strcmp(r.method, "PUT") == 0) {
		go_on = answer_put(c, &r);
	} else {
		go_on = answer_delete(c, &r);
	}
	return go_on &&
	       (atomic_load(&f->close_after) == 0 || c->requests < atomic_load(&f->close_after));
}

static void *serve_all(void *arg)
{
	struct connection *c = arg;
	struct fake_daemon *d = c->d;

	while (!d->ending && serve(c))
		;
	d->live_connections--;
	pthread_mutex_lock(&d->lock);
	d->sockets[c->slot] = -1;
	pthread_mutex_unlock(&d->lock);
	(void)close(c->fd);
	free(c);
	return NULL;
}

static void begin_connection(struct fake_daemon *d, int fd)
{
	struct connection *c = calloc(1, sizeof(*c));
	int slot = d->connections++, yes = 1;

	must(c != NULL);
	must(slot < 256);
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	c->d = d;
	c->fd = fd;
	c->slot = slot;
	pthread_mutex_lock(&d->lock);
	d->sockets[slot] = fd;
	pthread_mutex_unlock(&d->lock);
	must(pthread_create(&d->threads[slot], NULL, serve_all, c) == 0);
	d->started[slot] = true;
	if (++d->live_connections > d->most_connections)
		d->most_connections = atomic_load(&d->live_connections);
}

static void *accept_all(void *arg)
{
	struct fake_daemon *d = arg;

	while (!d->ending) {
		struct pollfd p = {.events = POLLIN};
		int fd;

		pthread_mutex_lock(&d->lock);
		p.fd = d->listener;
		pthread_mutex_unlock(&d->lock);
		if (poll(&p, 1, 5) <= 0)
			continue;
		fd = accept(p.fd, NULL, NULL);
		if (fd >= 0)
			begin_connection(d, fd);
	}
	return NULL;
}

/* --- life ------------------------------------------------------------------------------------- */

void fake_listen(struct fake_daemon *d)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);
	int yes = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	a.sin_port = htons(d->port);
	must(fd >= 0);
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	must(bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0);
	must(listen(fd, 64) == 0);
	must(getsockname(fd, (struct sockaddr *)&a, &len) == 0);
	d->port = ntohs(a.sin_port);
	pthread_mutex_lock(&d->lock);
	d->listener = fd;
	pthread_mutex_unlock(&d->lock);
}

void fake_start(struct fake_daemon *d)
{
	static _Atomic int number;

	memset(d, 0, sizeof(*d));
	(void)pthread_mutex_init(&d->lock, NULL);
	(void)snprintf(d->segment, sizeof(d->segment), "kvt-fake-%d-%d", (int)getpid(), number++);
	d->size = SEGMENT_BYTES;
	atomic_store(&d->faults.can_delete, 1);
	memset(d->sockets, 0xff, sizeof(d->sockets));
	make_segment(d);
	fake_listen(d);
	must(pthread_create(&d->thread, NULL, accept_all, d) == 0);
}

void fake_hang_up(struct fake_daemon *d)
{
	pthread_mutex_lock(&d->lock);
	for (size_t i = 0; i < 256; i++)
		if (d->sockets[i] >= 0)
			(void)shutdown(d->sockets[i], SHUT_RDWR);
	pthread_mutex_unlock(&d->lock);
}

void fake_deafen(struct fake_daemon *d)
{
	pthread_mutex_lock(&d->lock);
	(void)close(d->listener);
	d->listener = -1;
	pthread_mutex_unlock(&d->lock);
	fake_hang_up(d);
}

void fake_restart(struct fake_daemon *d, bool new_segment)
{
	fake_hang_up(d);
	pthread_mutex_lock(&d->lock);
	memset(d->objects, 0, sizeof(d->objects));
	memset(d->ids, 0, sizeof(d->ids));
	d->live = 0;
	if (new_segment) {
		drop_segment(d);
		make_segment(d);
	} else {
		d->used = 0;
	}
	pthread_mutex_unlock(&d->lock);
}

void fake_stop(struct fake_daemon *d)
{
	d->ending = true;
	(void)pthread_join(d->thread, NULL);
	fake_hang_up(d);
	for (size_t i = 0; i < 256; i++)
		if (d->started[i])
			(void)pthread_join(d->threads[i], NULL);
	if (d->listener >= 0)
		(void)close(d->listener);
	drop_segment(d);
	(void)pthread_mutex_destroy(&d->lock);
}

bool fake_damage(struct fake_daemon *d, const char *text, size_t at)
{
	struct fake_object *o;

	pthread_mutex_lock(&d->lock);
	o = find_text(d, text);
	if (o != NULL)
		*byte_at(d, o, at) ^= 0x40;
	pthread_mutex_unlock(&d->lock);
	return o != NULL;
}

bool fake_has(struct fake_daemon *d, const char *text)
{
	bool has;

	pthread_mutex_lock(&d->lock);
	has = find_text(d, text) != NULL;
	pthread_mutex_unlock(&d->lock);
	return has;
}

void fake_forget(struct fake_daemon *d, const char *text)
{
	struct fake_object *o;

	pthread_mutex_lock(&d->lock);
	while ((o = find_text(d, text)) != NULL)
		o->name[0] = '\0';
	pthread_mutex_unlock(&d->lock);
}

size_t fake_count(struct fake_daemon *d)
{
	size_t n = 0;

	pthread_mutex_lock(&d->lock);
	for (size_t i = 0; i < FAKE_OBJECTS; i++)
		n += d->objects[i].name[0] != '\0';
	pthread_mutex_unlock(&d->lock);
	return n;
}
