/*
 * memory_test.c - each allocation of the client fails in turn: every command ends once, with what it
 * asked for or with a reason, and nothing leaks (which a run with AddressSanitizer sees).
 */
#include <check.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support.h"
#include "tests/unit/failing_allocator.h"
#include "tests/unit/suite.h"

char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);

static long left = -1; /* allocations until one fails; -1: none does */
static long made;
static bool armed; /* the library is at work, not the test */

static bool fails(void)
{
	if (!armed)
		return false;
	made++;
	return left >= 0 && left-- == 0;
}

char *__wrap_strdup(const char *text)
{
	return fails() ? NULL : __real_strdup(text);
}

/* A server that answers what this test asks. */
struct responder {
	struct fake f;
	int fd;
	char heard[1024];
	size_t len;
	bool told_info, told_scan;
};

static void respond(struct responder *r)
{
	static const char info[] = "$3\r\na:b\r\n",
			  scan[] = "*2\r\n$2\r\n17\r\n*3\r\n$3\r\none\r\n:2\r\n$-1\r\n";
	ssize_t n;

	if (r->fd < 0) {
		r->fd = accept(r->f.listener, NULL, NULL);
		r->len = 0;
		r->told_info = r->told_scan = false;
	}
	if (r->fd < 0)
		return;
	n = recv(r->fd, r->heard + r->len, sizeof(r->heard) - r->len - 1, MSG_DONTWAIT);
	if (n == 0) {
		close(r->fd);
		r->fd = -1;
	}
	if (n <= 0)
		return;
	r->len += (size_t)n;
	r->heard[r->len] = '\0';
	if (!r->told_info && strstr(r->heard, "INFO\r\n$6\r\nserver\r\n") != NULL)
		r->told_info = send(r->fd, info, sizeof(info) - 1, MSG_NOSIGNAL) > 0;
	if (!r->told_scan && strstr(r->heard, "SCAN") != NULL)
		r->told_scan = send(r->fd, scan, sizeof(scan) - 1, MSG_NOSIGNAL) > 0;
}

static void check_end(const struct order *o)
{
	const struct kvw_redis_command *c = &o->c;

	ck_assert_uint_eq(o->done_count, 1);
	ck_assert(c->status == KVW_OK || c->status == KVW_ELIMIT || c->status == KVW_EIO);
	if (c->status != KVW_OK) {
		ck_assert_ptr_null(c->found);
		return;
	}
	ck_assert_int_eq(c->reply, KVW_REDIS_ARRAY);
	ck_assert_uint_eq(c->element_count, 4);
	ck_assert_str_eq(c->found[1].data, "one");
}

/* One client, one command, the n-th allocation failing. True: the command got its answer. */
static bool run(long n)
{
	struct responder r = {.fd = -1};
	char why[KVW_REDIS_REASON];
	enum kvw_err status;
	struct world w;
	struct order o;
	bool good = false;

	world_init(&w, "redis://127.0.0.1:1");
	fake_init(&r.f, &w);
	ck_assert_ptr_null(kvw_redis_url_parse(r.f.url, &w.url));
	w.options.connections = 2;
	made = 0;
	left = n;
	armed = true;
	status = kvw_redis_create(&w.options, why, &w.r);
	armed = false;
	ck_assert(status == KVW_OK || status == KVW_ENOMEM);
	if (status == KVW_OK) {
		ORDER(&o, &w, 1000 * MS, "SCAN", "0");
		o.c.elements = true;
		o.c.element_limit = 10000;
		order_submit(&o, &w);
		while (!o.done) {
			armed = true;
			world_step(&w);
			armed = false;
			respond(&r);
			(void)poll(NULL, 0, 1);
		}
		check_end(&o);
		good = o.c.status == KVW_OK;
		kvw_redis_elements_free(o.c.found, o.c.element_count);
	}
	world_finish(&w);
	if (r.fd >= 0)
		close(r.fd);
	fake_finish(&r.f);
	return good;
}

START_TEST(t_each_allocation_fails)
{
	long total;

	ck_assert(run(-1));
	total = made;
	ck_assert_int_gt(total, 8);
	for (long n = 0; n < total; n++)
		(void)run(n);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("memory");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, t_each_allocation_fails);
	return run_tcase("redis-memory", tc);
}
